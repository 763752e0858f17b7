// Sends requests to an object store, one by one, for the tests of objects/:
//   longhaul_objects_tool COMMAND...
//   look ADDRESS | list ADDRESS | fetch ADDRESS FILE | put FILE ADDRESS | text ADDRESS |
//   remove ADDRESS | copy ADDRESS DIR MOST_BYTES | read ADDRESS THREADS BYTES TIMES
// Prints what the store said, and last the counts of requests and retries.
#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"
#include "longhaul/objects/local_copy.h"
#include "longhaul/objects/object_store.h"
#include "longhaul/system/run_on_threads.h"

namespace {

using namespace longhaul;
using objects::parse_address;

void print(const objects::ObjectInfo& object) {
  fmt::print("{} {} {}\n", object.address.text(), object.size, object.version);
}

/// Reads an object whole, `times` times, by several threads; prints its hash.
void read(objects::ObjectStore& store, const objects::Address& address, int threads,
          uint64_t bytes, int times, bool shared) {
  const auto object = store.look(address);
  if (!object) fail_input("objects", "{}: is not there", address.text());
  std::vector<std::byte> content(object->size);
  for (int time = 0; time < times; ++time) {
    const uint64_t pieces = (object->size + bytes - 1) / bytes;
    system::share_among_threads(
        static_cast<int64_t>(pieces), threads, [&](int64_t index) {
          const uint64_t begin = static_cast<uint64_t>(index) * bytes;
          const uint64_t count = std::min<uint64_t>(bytes, content.size() - begin);
          const std::span<std::byte> to = std::span(content).subspan(begin, count);
          if (shared) {
            std::ranges::copy_n(store.read_shared(*object, begin, count).get(),
                                static_cast<ptrdiff_t>(count), to.begin());
          } else {
            store.read(*object, begin, to);
          }
        });
    store.prove_unchanged(*object);
  }
  fmt::print("{}\n", hash_hex(content));
}

int run(const std::vector<std::string>& arguments) {
  objects::ObjectStore store;
  const std::string& what = arguments.at(0);
  if (what == "look") {
    const auto object = store.look(parse_address(arguments.at(1)));
    if (object) print(*object);
  } else if (what == "list") {
    for (const auto& one : store.list(parse_address(arguments.at(1)), true)) print(one);
  } else if (what == "fetch") {
    const auto object = store.look(parse_address(arguments.at(1)));
    if (!object) fail_input("objects", "{}: is not there", arguments.at(1));
    fmt::print("{}\n", store.fetch(*object, arguments.at(2)));
  } else if (what == "put") {
    fmt::print("{}\n", store.put(arguments.at(1), parse_address(arguments.at(2))));
  } else if (what == "text") {
    fmt::print("{}\n", store.read_text(parse_address(arguments.at(1))).value_or("none"));
  } else if (what == "remove") {
    store.remove(parse_address(arguments.at(1)));
  } else if (what == "remove_all") {
    store.remove_all(parse_address(arguments.at(1)));
  } else if (what == "copy") {
    const std::shared_ptr<objects::ObjectStore> shared(&store, [](auto*) {});
    objects::LocalCopies copies(
        shared, arguments.at(2), std::stoull(arguments.at(3)),
        [](const std::string& line) { fmt::print("{}\n", line); });
    fmt::print("{}\n", copies.get(parse_address(arguments.at(1))).string());
  } else if (what == "read" || what == "read_shared") {
    read(store, parse_address(arguments.at(1)), std::stoi(arguments.at(2)),
         std::stoull(arguments.at(3)), std::stoi(arguments.at(4)), what == "read_shared");
  }
  const objects::ObjectCounts counts = store.counts();
  fmt::print("requests {} retries {} read {} written {}\n", counts.requests,
             counts.retries, counts.read, counts.written);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return error.exit_code();
  }
}
