#pragma once

#include <jinja/value.h>

#include "longhaul/base/json.h"
#include "longhaul/chat/chat_template.h"

namespace longhaul::chat {

// The engine marks texts by whole numbers. 0 is the template, 1 what belongs to no
// message, and the others are made of a message and a field.
inline constexpr int kOfNoMessage = 1;
inline constexpr int kGenerationBegins = -1;
inline constexpr int kGenerationEnds = -2;
int mark_of(size_t message, Field field);
/// Returns the span's message and field for a mark above 0.
DataSpan span_of_mark(int mark);

/// Makes a value of the engine whose texts bear this mark. Throws InputError for numbers
/// beyond 64 bits.
jinja::value value_of(const OrderedJson& json, int mark);

/// Returns whether Python's str.isprintable holds for a code point.
bool is_printable(uint32_t code_point);

/// Appends the lower case of a code point. Returns false for the capital sigma, whose
/// lower case depends on where it stands.
bool append_lower(uint32_t code_point, std::string& out);

}  // namespace longhaul::chat
