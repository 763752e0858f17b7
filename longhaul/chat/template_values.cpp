#include "longhaul/chat/template_values.h"

#include "longhaul/base/error.h"
#include "longhaul/tokenizer/unicode/unicode_data.h"

namespace longhaul::chat {
namespace {

constexpr int kFirstMessage = 8;
constexpr int kFields = 4;

}  // namespace

int mark_of(size_t message, Field field) {
  return kFirstMessage + static_cast<int>(message) * kFields + static_cast<int>(field);
}

DataSpan span_of_mark(int mark) {
  if (mark < kFirstMessage) return {};
  DataSpan span;
  span.message = (mark - kFirstMessage) / kFields;
  span.field = static_cast<Field>((mark - kFirstMessage) % kFields);
  return span;
}

jinja::value value_of(const OrderedJson& json, int mark) {
  using namespace jinja;
  switch (json.type()) {
    case OrderedJson::value_t::null:
      return mk_val<value_none>();
    case OrderedJson::value_t::boolean:
      return mk_val<value_bool>(json.get<bool>());
    case OrderedJson::value_t::number_integer:
      return mk_val<value_int>(json.get<int64_t>());
    case OrderedJson::value_t::number_unsigned: {
      const auto number = json.get<uint64_t>();
      if (number > INT64_MAX) break;
      return mk_val<value_int>(static_cast<int64_t>(number));
    }
    case OrderedJson::value_t::number_float:
      return mk_val<value_float>(json.get<double>());
    case OrderedJson::value_t::string: {
      auto text = mk_val<value_string>(json.get_ref<const std::string&>());
      text->mark_input(mark);
      return text;
    }
    case OrderedJson::value_t::array: {
      auto list = mk_val<value_array>();
      for (const OrderedJson& item : json) list->push_back(value_of(item, mark));
      return list;
    }
    case OrderedJson::value_t::object: {
      auto object = mk_val<value_object>();
      for (const auto& [key, item] : json.items()) {
        auto name = mk_val<value_string>(key);
        name->mark_input(mark);
        object->insert(name, value_of(item, mark));
      }
      return object;
    }
    default:
      break;
  }
  fail_input("chat",
             "{}: a number beyond 64 bits, or one that is not finite; write it as text",
             json_text(json));
}

bool is_printable(uint32_t code_point) {
  if (code_point == ' ') return true;
  const int category = tokenizer::unicode_data().category(code_point);
  if (category == 0) return false;  // The code point is not assigned.
  const std::string_view name = tokenizer::kCategoryNames[category - 1];
  return name[0] != 'C' && name[0] != 'Z';
}

bool append_lower(uint32_t code_point, std::string& out) {
  constexpr uint32_t kCapitalSigma = 0x3A3;
  if (code_point == kCapitalSigma) return false;
  tokenizer::unicode_data().append_lower(code_point, out);
  return true;
}

}  // namespace longhaul::chat
