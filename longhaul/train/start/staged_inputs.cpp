#include "longhaul/train/start/staged_inputs.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/base/text.h"
#include "longhaul/checkpoint/mirror/mirror_listing.h"
#include "longhaul/comm/agree.h"
#include "longhaul/data/input/file_kinds.h"
#include "longhaul/data/open_source.h"
#include "longhaul/data/sources/arrow_source.h"
#include "longhaul/data/store/store.h"
#include "longhaul/objects/address.h"
#include "longhaul/run/files.h"
#include "longhaul/system/stopwatch.h"

namespace longhaul::train {
namespace {

constexpr const char* kCopiesOfObjects = "objects";

objects::CopyPlace copy_place(const RunConfig& config, system::Logger& log) {
  objects::CopyPlace place;
  if (!config.data.cache.empty()) place.dir = config.data.cache / kCopiesOfObjects;
  place.most_bytes =
      static_cast<uint64_t>(std::llround(std::min(1e9 * config.data.cache_gb, 1e18)));
  if (!log.silent()) place.tell = [&log](const std::string& line) { log.info(line); };
  return place;
}

/// All objects below an address. The outline is that of a save_to_disk directory; it is
/// empty for a token store.
struct Listing {
  std::vector<objects::ObjectInfo> objects;
  std::string outline;
};
using Listings = std::map<std::string, Listing>;  ///< by address
/// The fields of the entries that name an address.
using Fields = std::map<std::string, std::set<std::string>>;  ///< by address

std::string listings_text(const Listings& listings) {
  Json json = Json::object();
  for (const auto& [address, listing] : listings) {
    Json all = Json::array();
    for (const objects::ObjectInfo& object : listing.objects) {
      all.push_back({object.address.key, object.size, object.version});
    }
    json[address] = {listing.outline, all};
  }
  return json_text(json);
}

Listings parse_listings(const std::string& text) {
  Listings listings;
  const Json json = parse_json(text, "listings of stores");
  for (const auto& [address, listing] : json.items()) {
    const std::string bucket = objects::parse_address(address).bucket;
    Listing& parsed = listings[address];
    parsed.outline = listing.at(0).get<std::string>();
    for (const Json& object : listing.at(1)) {
      parsed.objects.push_back({{bucket, object.at(0).get<std::string>()},
                                object.at(1).get<uint64_t>(),
                                object.at(2).get<std::string>()});
    }
  }
  return listings;
}

/// Returns the addresses of data.train that are read in the order of their sequences.
/// Rows of whole documents take their documents from anywhere in a store.
Fields read_in_order(const RunConfig& config) {
  Fields found;
  if (config.data.shuffle || config.data.pack == PackKind::Whole) return found;
  const auto validates = [&](const fs::path& address) {
    const auto is_same = [&](const fs::path& entry) {
      return objects::is_address(entry) &&
             objects::parse_address(entry) == objects::parse_address(address);
    };
    return std::ranges::any_of(config.data.validation, [&](const auto& set) {
      return std::ranges::any_of(set.path.entries, is_same);
    });
  };
  for (const TrainSource& source : config.data.train) {
    for (const fs::path& entry : source.path.entries) {
      if (objects::is_address(entry) && !is_packed_in_place(entry) &&
          !has_wildcard(entry.native()) && !validates(entry)) {
        found[objects::parse_address(entry).text()].insert(source.field);
      }
    }
  }
  return found;
}

/// Lists the token stores and the save_to_disk directories among addresses.
Listings list_stores(const Fields& addresses, int64_t seq_len,
                     const std::shared_ptr<objects::ObjectStore>& store,
                     system::Logger& log) {
  Listings listings;
  for (const auto& [address, fields] : addresses) {
    const objects::Address prefix = objects::parse_address(address);
    Listing listing;
    // Where an object has exactly this name, the address means the object, and not what
    // lies below the name.
    if (!prefix.key.empty() && store->look(prefix)) continue;
    const bool tokens = store->look(prefix / data::kStoreRecord).has_value();
    const bool rows =
        !tokens && fields.size() == 1 && store->look(prefix / "state.json").has_value();
    if (tokens || rows) listing.objects = store->list(prefix, /*versions=*/true);
    if (rows) {
      listing.outline = data::outline_of_saved_dataset(prefix, listing.objects,
                                                       *fields.begin(), seq_len, store);
    }
    if (tokens || !listing.outline.empty()) {
      listings[address] = std::move(listing);
    } else {
      log.info(
          "{} is no token store, and no save_to_disk directory with {} tokens in each "
          "row: it is copied whole, although the order is sequential",
          address, seq_len);
    }
  }
  return listings;
}

/// Returns whether what lies below an address is a mirror of checkpoints, or a step of
/// one: the names of its manifests have the attempt in them. A mirror of which no step is
/// whole yet says whose it is.
bool is_mirror(const objects::Address& address, objects::ObjectStore& store) {
  bool has_owner = false;
  bool has_plain = false;
  for (const auto& object : store.list(address, /*versions=*/false)) {
    const size_t outside = address.key.empty() ? 0 : address.key.size() + 1;
    const fs::path name = object.address.key.substr(outside);
    has_owner = has_owner || name == run::kCheckpointsOwnerFile;
    const fs::path dir = name.parent_path();
    const bool in_step = dir.empty() || (!dir.has_parent_path() && run::step_of(dir));
    if (!in_step) continue;
    if (checkpoint::mirror_manifest_attempt(name.filename().string())) return true;
    has_plain = has_plain || name.filename() == run::kManifestFile;
  }
  return has_owner && !has_plain;
}

/// Throws InputError where init.weights is a mirror. Copying it would fetch the
/// optimizer's state of every step to every machine.
void refuse_mirror(const fs::path& weights, objects::ObjectStore& store) {
  if (!is_mirror(objects::parse_address(weights), store)) return;
  fail_input("init.weights",
             "{0}: is a mirror of checkpoints, of which training reads no weights; give "
             "the directory that `longhaul export {0} --out DIR` makes, or its address",
             weights.string());
}

void stage(const fs::path& address, const Listings& listings,
           const objects::Access& objects, system::Logger& log) {
  const uint64_t before = objects.store()->counts().read;
  const system::Stopwatch watch;
  const auto listed = listings.find(objects::parse_address(address).text());
  if (listed != listings.end()) {
    const Listing& listing = listed->second;
    objects.read_in_pieces(
        address, listing.objects,
        listing.outline.empty() ? data::is_shard_file : data::is_rows_file,
        listing.outline);
  }
  const fs::path copy = objects.readable(address);
  const uint64_t bytes = objects.store()->counts().read - before;
  log.info("{} is read from {}{}: {} fetched by this rank in {:.1f} s", address.string(),
           copy.string(), listed == listings.end() ? "" : ", its shards as they come",
           human_bytes(bytes), watch.seconds());
}

/// Throws TemporaryError unless all ranks have copies of the same versions of the
/// objects: each machine has looked at them on its own. Collective.
void prove_same_copies(const std::vector<fs::path>& addresses,
                       const objects::Access& objects, comm::Communicator& world) {
  std::string own;
  for (const fs::path& address : addresses) {
    // The path is DIR/ID/content/NAME, and the ID follows from the versions.
    own += objects.readable(address).parent_path().parent_path().filename().string();
    own += "\n";
  }
  const std::string first = world.broadcast_string(own, 0);
  comm::on_all_ranks(world, [&] {
    if (own == first) return;
    fail_temporary(
        "objects",
        "rank {} has copied other versions of the run's objects than rank 0: they "
        "were replaced meanwhile; start again when no program changes them",
        world.rank());
  });
}

}  // namespace

bool is_packed_in_place(const fs::path& entry) {
  return objects::is_address(entry) && data::may_hold_ids(entry);
}

bool stage_inputs(const RunConfig& config, comm::Communicator& world,
                  const objects::Access& objects, system::Logger& log) {
  std::vector<fs::path> addresses = addresses_of(config);
  std::erase_if(addresses, is_packed_in_place);
  if (addresses.empty()) return false;
  objects.keep_copies(copy_place(config, log));
  objects::ObjectStore& store = *objects.store();
  const auto do_and_meet = [&](const auto& work) {
    comm::do_and_meet(world, work, [&] { store.stop(); });
  };
  if (objects::is_address(config.init.weights)) {
    do_and_meet([&] {
      if (world.rank() == 0) refuse_mirror(config.init.weights, store);
    });
  }
  const Fields in_order = read_in_order(config);
  std::string listed = "{}";
  if (!in_order.empty()) {
    // One rank lists, so that all read the same versions of the objects.
    do_and_meet([&] {
      if (world.rank() > 0) return;
      listed =
          listings_text(list_stores(in_order, config.data.seq_len, objects.store(), log));
    });
    listed = world.broadcast_string(listed, 0);
  }
  const Listings listings = parse_listings(listed);
  do_and_meet([&] {
    for (const fs::path& address : addresses) stage(address, listings, objects, log);
  });
  prove_same_copies(addresses, objects, world);
  // The copies may outlive the log, so they must not refer to it any more.
  objects.keep_copies({});
  return !listings.empty();
}

std::vector<fs::path> local_paths(const DataPaths& entry,
                                  const objects::Access& objects) {
  std::vector<fs::path> paths = data::expand_paths(entry.entries);
  for (fs::path& path : paths) {
    if (!is_packed_in_place(path)) path = objects.readable(path);
  }
  return paths;
}

}  // namespace longhaul::train
