// A library that registers nothing.
extern "C" int longhaul_empty_plugin() { return 1; }
