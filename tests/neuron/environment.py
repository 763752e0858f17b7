"""Makes a folder a virtual environment that has the stand-in beside the PyTorch of this one."""

import pathlib
import sys
import sysconfig


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def make(place):
    packages = place / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    write(place / "pyvenv.cfg",
          f"home = {pathlib.Path(sys._base_executable).parent}\n"
          "include-system-site-packages = false\n")
    for name in ("python3", "python"):
        link = place / "bin" / name
        link.parent.mkdir(exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(pathlib.Path(sys._base_executable).resolve())
    write(packages / "standin.pth", f"{place}\n{sysconfig.get_path('purelib')}\n")
    for name, version, points in (
            ("torch_neuronx", "2.13.3.0+standin",
             "[torch.backends]\ntorch_neuronx = torch_neuronx:_autoload\n"),
            ("neuronx_cc", "2.33.0+standin", "")):
        folder = place / f"{name}-{version}.dist-info"
        write(folder / "METADATA",
              f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n")
        write(folder / "entry_points.txt", points)


if __name__ == "__main__":
    make(pathlib.Path(sys.argv[1]).resolve())
