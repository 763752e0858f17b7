#pragma once

#include <memory>
#include <vector>

#include "longhaul/data/sources/token_source.h"
#include "longhaul/data/store/store.h"

namespace longhaul::data {

/// A token store, mapped. Immutable; any thread may read.
class TokenStore {
 public:
  explicit TokenStore(const fs::path& path);
  const StoreInfo& info() const { return info_; }
  const fs::path& path() const { return path_; }
  /// Copies tokens [begin, begin + out.size()) of the whole store. InputError when one is
  /// past the largest id that store.json names: the file is damaged.
  void read(int64_t begin, std::span<int32_t> out) const;
  /// The place after the last token of a document.
  int64_t document_end(int64_t document) const;
  /// The document that holds a token.
  int64_t document_of(int64_t token) const;

 private:
  fs::path path_;
  StoreInfo info_;
  std::vector<MappedFile> shards_;
  MappedFile ends_;
};

/// Sequence i is tokens [i s, i s + s], the last of them only a target. With
/// `document_mask` position and attention begin anew at each document; a document's last
/// token still predicts the next one's first, which is how generation begins after EOS.
std::unique_ptr<TokenSource> store_source(const fs::path& path, int64_t seq_len,
                                          bool document_mask);

}  // namespace longhaul::data
