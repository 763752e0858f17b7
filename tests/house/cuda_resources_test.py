"""The table of the CUDA kernels' resources: a spill and a lost wide access are found."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import cuda_resources  # noqa: E402

LINE = ("sm_80 norm forward<float> registers 30 stack 0 spill 0 shared 32 "
        "load 128x2,32x1 store 128x1")
PTXAS = """ptxas info    : Compiling entry function '_Z1aPf' for 'sm_80'
ptxas info    : Function properties for _Z1aPf
    24 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 33 registers, used 1 barriers, 24 bytes cumulative stack size, 64 bytes smem
ptxas info    : Compiling entry function '_Z1bPf' for 'sm_90a'
ptxas info    : Function properties for _Z1bPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers
"""
DISASSEMBLY = """[{"producer": "nvdisasm"}, [
{"function-name": "_Z1aPf", "sass-instructions": [
 {"opcode": "LDC", "operands": "R1,c[0x0][0x37c]"},
 {"opcode": "LDG.E.128.CONSTANT", "operands": "R4,desc[UR4][R2.64]"},
 {"opcode": "LDG.E.LTC128B.128.STRONG.GPU", "operands": "R8,desc[UR4][R2.64+0x10]"},
 {"opcode": "LDG.E.U16", "operands": "R5,desc[UR4][R2.64+0x20]"},
 {"opcode": "STG.E.128", "operands": "desc[UR4][R6.64],R4"},
 {"opcode": "STS.128", "operands": "[R0],R4"}]},
{"function-name": "_Z1bPf", "sass-instructions": [
 {"opcode": "ST.E", "operands": "desc[UR4][R2.64],R0"}]}]]"""


class Resources(unittest.TestCase):
    def problems(self, line, expected=LINE, same_release=True):
        table = cuda_resources.keyed([expected]) if expected else {}
        return cuda_resources.problems_of(cuda_resources.keyed([line]), table, same_release)

    def test_the_same_line_is_no_problem(self):
        self.assertEqual([], self.problems(LINE))

    def test_a_spill_is_one_even_in_the_table(self):
        line = LINE.replace("spill 0", "spill 8")
        self.assertEqual(1, len(self.problems(line, expected=line, same_release=False)))

    def test_lost_wide_accesses_are_one_with_any_compiler(self):
        for lost in (LINE.replace("load 128x2,", "load "), LINE.replace("store 128x1", "store 32x4")):
            found = self.problems(lost, same_release=False)
            self.assertEqual(1, len(found))
            self.assertIn("no 16-byte accesses", found[0])

    def test_how_often_a_loop_is_unrolled_counts_with_the_tables_compiler_alone(self):
        fewer = LINE.replace("128x2", "128x1")
        self.assertEqual(1, len(self.problems(fewer)))
        self.assertEqual([], self.problems(fewer, same_release=False))

    def test_registers_count_with_the_tables_compiler_alone(self):
        more = LINE.replace("registers 30", "registers 31")
        self.assertEqual(1, len(self.problems(more)))
        self.assertEqual([], self.problems(more, same_release=False))

    def test_kernels_that_come_or_go_are_told(self):
        self.assertEqual(1, len(self.problems(LINE, expected=None)))
        self.assertEqual(2, len(self.problems(LINE.replace("forward", "backward"))))

    def test_figures_are_read_from_what_ptxas_says(self):
        self.assertEqual({("sm_80", "_Z1aPf"): {"stack": 24, "spill": 12, "registers": 33,
                                                "shared": 64},
                          ("sm_90a", "_Z1bPf"): {"stack": 0, "spill": 0, "registers": 8,
                                                 "shared": 0}},
                         cuda_resources.resources(PTXAS))

    def test_accesses_of_global_memory_are_counted_by_width(self):
        self.assertEqual({"_Z1aPf": {"load": {128: 2, 16: 1}, "store": {128: 1}},
                          "_Z1bPf": {"load": {}, "store": {32: 1}}},
                         cuda_resources.accesses(DISASSEMBLY))

    def test_a_kernels_name_is_one_word_that_has_all_its_types(self):
        # void longhaul::kernels::a<longhaul::b<float, unsigned short>, 4>(int)
        symbol = "_ZN8longhaul7kernels1aINS_1bIftEELi4EEEvi"
        self.assertEqual({symbol: "a<b<float,uint16_t>,4>"}, cuda_resources.short_names([symbol]))

    def test_a_kernels_name_has_its_values_of_enums(self):
        # void longhaul::kernels::a<float, (longhaul::kernels::b)2>(int)
        symbol = "_ZN8longhaul7kernels1aIfLNS0_1bE2EEEvi"
        self.assertEqual({symbol: "a<float,2>"}, cuda_resources.short_names([symbol]))

    def test_the_build_and_the_table_have_the_same_settings(self):
        self.assertEqual(["sm_80", "sm_90a", "sm_100"],
                         cuda_resources.setting("LONGHAUL_CUDA_ARCH"))
        self.assertIn("-fmad=false", cuda_resources.setting("LONGHAUL_NVCC_FLAGS"))


if __name__ == "__main__":
    unittest.main()
