#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/data/sources/token_source.h"
#include "longhaul/objects/object_store.h"
#include "longhaul/objects/pieces.h"

namespace longhaul::data {

/// Opens a save_to_disk directory whose rows are read in place as sequences. Every row
/// must have seq_len tokens in the column `field`. Targets are the labels (the ids if
/// there are no labels) shifted by one, as Hugging Face models shift them. The last
/// position, labels of -100 and padding at a row's end have no target. The function reads
/// the headers of the files' messages and the lengths of the rows, not the values. Each
/// record batch is validated in full before its first row is used, and each row's ids
/// when the row is read. An InputError names the file, the row, what was expected and
/// what to do.
std::unique_ptr<TokenSource> saved_dataset_source(const fs::path& path, int64_t seq_len,
                                                  const std::string& field = kIdsField);

/// Opens the rows of one Arrow file of a save_to_disk directory in the same way as
/// saved_dataset_source() opens all rows.
std::unique_ptr<TokenSource> saved_file_source(const fs::path& file, int64_t seq_len,
                                               const std::string& field = kIdsField);

/// The number of rows in a save_to_disk directory, and the numbers of tokens in the
/// shortest and the longest row.
struct SavedRows {
  int64_t rows = 0;
  int64_t shortest = 0;
  int64_t longest = 0;
  /// Returns true when rows differ in length, so that the rows must be packed to become
  /// sequences.
  bool uneven() const { return shortest != longest; }
};
/// Counts rows and tokens, which costs no more than opening the directory.
SavedRows saved_rows(const fs::path& path, const std::string& field = kIdsField);

/// Describes a save_to_disk directory in a few lines, for people. Throws InputError if
/// the directory is not complete.
std::string describe_saved_dataset(const fs::path& path,
                                   const std::string& field = kIdsField);

/// Returns whether a file of a save_to_disk directory holds rows, by its name.
bool is_rows_file(std::string_view name);

/// Returns what saved_pieces_source() has to know of a save_to_disk directory below
/// `prefix`. `objects` are all that lie there, with their versions. No file of the format
/// says how many rows another one has. So this reads the headers of each file's messages,
/// which is a small request for each record batch. Returns an empty text if the rows
/// cannot be read file by file, since not all have seq_len tokens in the column `field`.
std::string outline_of_saved_dataset(const objects::Address& prefix,
                                     const std::vector<objects::ObjectInfo>& objects,
                                     const std::string& field, int64_t seq_len,
                                     const std::shared_ptr<objects::ObjectStore>& store);

/// Opens a save_to_disk directory as saved_dataset_source() does, with the same sequences
/// and the same fingerprint. A read fetches the file of its row, waits for the file, and
/// releases the file that was read before. `path` is the directory of the pieces.
std::unique_ptr<TokenSource> saved_pieces_source(
    const fs::path& path, int64_t seq_len, const std::string& field,
    std::shared_ptr<const objects::Pieces> pieces);

}  // namespace longhaul::data
