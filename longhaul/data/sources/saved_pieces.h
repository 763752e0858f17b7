#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/data/places/input_objects.h"
#include "longhaul/data/sources/token_source.h"
#include "longhaul/objects/pieces.h"

namespace longhaul::data {

/// Returns whether a file of a save_to_disk directory holds rows, by its name.
bool is_rows_file(std::string_view name);

/// Returns what saved_pieces_source() has to know of a save_to_disk directory below
/// `prefix`. `objects` are all that lie there, with their versions. No file of the format
/// says how many rows another one has. So this reads the framing of each file, which is a
/// small request for each record batch. Returns an empty text where the rows cannot be
/// read file by file, since not all have seq_len tokens in the column `field`.
std::string outline_of_saved_dataset(const objects::Address& prefix,
                                     const std::vector<objects::ObjectInfo>& objects,
                                     const std::string& field, int64_t seq_len,
                                     const std::shared_ptr<InputObjects>& store);

/// Opens a save_to_disk directory as saved_dataset_source() does, with the same sequences
/// and the same fingerprint. A read brings the file of its row here and waits for it, and
/// lets the file before go. `path` is the directory of the pieces.
std::unique_ptr<TokenSource> saved_pieces_source(
    const fs::path& path, int64_t seq_len, const std::string& field,
    std::shared_ptr<const objects::Pieces> pieces);

}  // namespace longhaul::data
