# cmark-gfm, GitHub's parser of Markdown, for the pages of `longhaul docs`.
include_guard(GLOBAL)
include(LonghaulSystemLibrary)
longhaul_system_library(cmark
  HEADER cmark-gfm-core-extensions.h
  PACKAGES "libcmark-gfm-dev, libcmark-gfm-extensions-dev"
  LIBRARIES cmark-gfm-extensions cmark-gfm)
