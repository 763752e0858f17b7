#pragma once

// counted() and listed() are declared in text.h.
#include "longhaul/base/text.h"
