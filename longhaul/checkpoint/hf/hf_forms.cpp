#include "longhaul/checkpoint/hf/hf_forms.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/checkpoint/hf/adapted_base.h"

namespace longhaul::checkpoint {
namespace {

/// Elements in memory while a box is rearranged.
constexpr int64_t kAtOnce = int64_t{1} << 22;

/// Rows [begin, end) of a matrix and some of its columns; a vector has one column.
struct Area {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t first_column = 0;
  int64_t columns = 1;
};

Area area_of(const format::TensorSlice& box, bool transposed) {
  const size_t row = transposed ? 1 : 0;
  Area area{box.offset[row], box.offset[row] + box.extent[row], 0, 1};
  if (box.extent.size() == 2) {
    area.first_column = box.offset[1 - row];
    area.columns = box.extent[1 - row];
  }
  return area;
}

/// Returns the box of an area of `whole`. If `whole` is a stack of matrices
/// (StoredForm::matrices), the area lies in one of them.
format::TensorSlice box_of(format::TensorSlice whole, const Area& area, bool transposed) {
  if (whole.extent.size() == 3) {
    const int64_t height = whole.extent[1];
    whole.offset = {area.begin / height, area.begin % height, area.first_column};
    whole.extent = {1, area.end - area.begin, area.columns};
    return whole;
  }
  const size_t row = transposed ? 1 : 0;
  whole.offset[row] = area.begin;
  whole.extent[row] = area.end - area.begin;
  if (whole.extent.size() == 2) {
    whole.offset[1 - row] = area.first_column;
    whole.extent[1 - row] = area.columns;
  }
  return whole;
}

/// Tells where rows of one tensor lie in another tensor: one tensor is a parameter, the
/// other tensor is in the files.
struct Piece {
  format::TensorSlice from;      ///< the whole tensor that is read
  bool from_transposed = false;  ///< whether `from` is [columns, rows]
  int64_t rows = 0;              ///< rows of the parameter
  StoredForm form;
  /// Whether a tensor of the files is made from parameters, not the other way round.
  bool to_stored = false;

  /// Returns how many rows of the made tensor, from row `at` on, lie side by side in both
  /// tensors, and the number of row `at` in `from`. Returns 0 rows if this piece does not
  /// have row `at`.
  std::pair<int64_t, int64_t> run(int64_t at) const {
    if (!to_stored) return {form.block - at % form.block, form.row(at)};
    const int64_t here = at - form.first;
    if (here < 0) return {0, 0};
    const int64_t in_period = here % form.period;
    const int64_t r = here / form.period * form.block + in_period;
    if (in_period >= form.block || r >= rows) return {0, 0};
    return {std::min(form.block - in_period, rows - r), r};
  }
};

/// Columns of a made tensor, and the columns of a piece's tensor that they are.
struct Columns {
  int64_t to = 0;  ///< the first column, counted from the first that is wanted
  int64_t to_step = 1;
  int64_t from = 0;
  int64_t from_step = 1;
  int64_t count = 0;

  Columns(const Piece& piece, const Area& wanted) {
    const int64_t period = piece.form.column_period, first = piece.form.first_column;
    if (!piece.to_stored) {
      from = wanted.first_column * period + first;
      from_step = period;
      count = wanted.columns;
      return;
    }
    from = std::max<int64_t>(0, (wanted.first_column - first + period - 1) / period);
    to = from * period + first - wanted.first_column;
    to_step = period;
    count = std::max<int64_t>(0, (wanted.columns - to + period - 1) / period);
  }
};

/// A tensor that is put together from other tensors.
struct Made {
  format::TensorSlice whole;
  bool transposed = false;  ///< whether `whole` is [columns, rows]
  std::vector<Piece> pieces;

  bool plain() const {
    return pieces.size() == 1 && !transposed && !pieces[0].from_transposed &&
           whole.global_shape == pieces[0].from.global_shape;
  }
};

class MappedSource final : public WeightsSource {
 public:
  /// Keeps a tensor of `inner` unchanged if no piece reads it. `parameters` says whether
  /// as_parameters made this source.
  MappedSource(SharedSource inner, std::vector<Made> made, bool parameters)
      : inner_(std::move(inner)), parameters_(parameters) {
    std::set<std::string> read;
    std::map<std::string, format::DType> types;
    for (const format::TensorSlice& tensor : inner_->tensors())
      types[tensor.name] = tensor.dtype;
    for (Made& one : made) {
      bool all = true;
      for (const Piece& piece : one.pieces) {
        const auto found = types.find(piece.from.name);
        all = all && found != types.end();
        if (found != types.end()) one.whole.dtype = found->second;
        read.insert(piece.from.name);
      }
      // If a tensor is missing from the files, tensor_problems() reports it.
      if (!all) continue;
      tensors_.push_back(one.whole);
      made_.emplace(one.whole.name, std::move(one));
    }
    for (const format::TensorSlice& tensor : inner_->tensors()) {
      if (!read.contains(tensor.name)) tensors_.push_back(tensor);
    }
    std::ranges::sort(tensors_, {}, &format::TensorSlice::name);
  }

  const SharedSource& inner() const { return inner_; }
  bool parameters() const { return parameters_; }

  const ModelSource& source() const override { return inner_->source(); }
  std::vector<format::TensorSlice> tensors() const override { return tensors_; }
  const StoredTensors& stored() const override { return inner_->stored(); }
  bool as_stored(const std::string& name) const override {
    return !made_.contains(name) && inner_->as_stored(name);
  }
  const WeightsSource& files() const override { return inner_->files(); }
  std::vector<std::string> origins(const std::string& name) const override {
    const auto found = made_.find(name);
    if (found == made_.end()) return inner_->origins(name);
    std::vector<std::string> names;
    for (const Piece& piece : found->second.pieces) {
      const std::vector<std::string> more = inner_->origins(piece.from.name);
      names.insert(names.end(), more.begin(), more.end());
    }
    return names;
  }
  fs::path config_path() const override { return inner_->config_path(); }
  std::vector<CarriedFile> files_to_carry() const override {
    return inner_->files_to_carry();
  }
  std::vector<std::string> ignored() const override { return inner_->ignored(); }

  void read(const format::TensorSlice& box, format::DType dst,
            std::span<std::byte> out) const override {
    const auto found = made_.find(box.name);
    if (found == made_.end()) return inner_->read(box, dst, out);
    const Made& made = found->second;
    LH_CHECK(box.global_shape == made.whole.global_shape, "weights",
             "{} has shape {}, expected {}", box.name,
             format::describe_shape(made.whole.global_shape),
             format::describe_shape(box.global_shape));
    if (made.plain() && box.is_whole()) {
      return inner_->read(made.pieces[0].from, dst, out);
    }
    const Area area = area_of(box, made.transposed);
    const int64_t most = std::max<int64_t>(1, kAtOnce / area.columns);
    for (int64_t at = area.begin; at < area.end;) {
      int64_t rows = std::min(area.end - at, most);
      // Pieces with some of the columns share rows.
      std::vector<std::pair<const Piece*, int64_t>> found_at;
      for (const Piece& piece : made.pieces) {
        const auto [length, place] = piece.run(at);
        if (length == 0) continue;
        rows = std::min(rows, length);
        found_at.emplace_back(&piece, place);
      }
      LH_ASSERT(!found_at.empty(), "row {} of {} is nowhere", at, made.whole.name);
      for (const auto& [piece, place] : found_at) {
        read_rows(*piece, place, rows, made, area, at, dst, out);
      }
      at += rows;
    }
  }

 private:
  /// Elements of a matrix: element (r, c) is number offset + r * row + c * column.
  struct Elements {
    std::shared_ptr<const std::vector<std::byte>> bytes;
    int64_t offset = 0, row = 0, column = 0;
  };

  /// Reads rows [place, place + rows) of `piece.from` in these columns. Parameters whose
  /// columns lie apart in one tensor are read one after another, so that the whole tensor
  /// is read once and kept.
  Elements read_elements(const Piece& piece, int64_t place, int64_t rows,
                         const Columns& columns, format::DType dst) const {
    const auto read_box = [&](const format::TensorSlice& box) {
      auto bytes = std::make_shared<std::vector<std::byte>>(
          static_cast<size_t>(box.num_elements()) * format::dtype_size(dst));
      inner_->read(box, dst, *bytes);
      return bytes;
    };
    if (columns.from_step == 1) {
      const Area wanted{place, place + rows, columns.from, columns.count};
      const bool turned = piece.from_transposed;
      return {read_box(box_of(piece.from, wanted, turned)), 0, turned ? 1 : columns.count,
              turned ? rows : 1};
    }
    const std::lock_guard lock(mutex_);
    if (kept_name_ != piece.from.name || kept_dtype_ != dst) {
      kept_ = read_box(piece.from);
      kept_name_ = piece.from.name;
      kept_dtype_ = dst;
    }
    const int64_t width = piece.from.global_shape[1];
    return {kept_, place * width + columns.from, width, columns.from_step};
  }

  /// Reads rows [place, place + rows) of `piece.from` and writes them to `out`, which
  /// holds `area`, as its rows from `at` on.
  void read_rows(const Piece& piece, int64_t place, int64_t rows, const Made& made,
                 const Area& area, int64_t at, format::DType dst,
                 std::span<std::byte> out) const {
    const Columns columns(piece, area);
    if (columns.count == 0) return;
    const size_t size = format::dtype_size(dst);
    const Elements from = read_elements(piece, place, rows, columns, dst);
    const int64_t height = area.end - area.begin;
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t row = at - area.begin + r;
      for (int64_t c = 0; c < columns.count; ++c) {
        const int64_t column = columns.to + c * columns.to_step;
        const int64_t to =
            made.transposed ? column * height + row : row * area.columns + column;
        const int64_t number = from.offset + r * from.row + c * from.column;
        std::memcpy(out.data() + static_cast<size_t>(to) * size,
                    from.bytes->data() + static_cast<size_t>(number) * size, size);
      }
    }
  }

  SharedSource inner_;
  bool parameters_;
  std::vector<format::TensorSlice> tensors_;
  std::map<std::string, Made> made_;
  mutable std::mutex mutex_;  ///< of what follows: the tensor that was read last
  mutable std::shared_ptr<const std::vector<std::byte>> kept_;
  mutable std::string kept_name_;
  mutable format::DType kept_dtype_ = format::DType::F32;
};

/// Returns the parameters that files hold in another form.
std::vector<const ParameterDescription*> parameters_of_other_form(
    const ModelDescription& model) {
  std::vector<const ParameterDescription*> found;
  for (const ParameterDescription& p : model.parameters()) {
    if (p.stored) found.push_back(&p);
  }
  return found;
}

/// Makes one tensor available under another name.
Made renamed(const format::TensorSlice& tensor, std::string name) {
  format::TensorSlice whole = tensor;
  whole.name = std::move(name);
  const int64_t rows = tensor.global_shape.empty() ? 1 : tensor.global_shape[0];
  return {
      std::move(whole), false, {{tensor, false, rows, {"", false, rows, 0, rows, rows}}}};
}

/// Returns today's name of a tensor of older files.
std::string usual_name(const std::string& name, const ModelDescription& model,
                       const std::string& prefix) {
  if (model.tied && name == model.tied->head) return name;
  for (const auto& [old, now] : model.old_endings) {
    if (!name.ends_with(old)) continue;
    return prefix + name.substr(0, name.size() - old.size()) + now;
  }
  return prefix + name;
}

using Names = std::map<std::string, format::TensorSlice>;

/// Returns the parameters that files hold in their other form (other_form). Leaves out a
/// stored tensor of an unexpected shape, and one of whose parameters the files also hold
/// under its own name: tensor_problems() reports both.
std::vector<Made> made_of_other_forms(const ModelDescription& model, const Names& files) {
  std::map<std::string, std::vector<Made>> found;
  std::set<std::string> doubtful;
  for (const UnitDescription& unit : model.units) {
    for (const ParameterDescription& p : unit.parameters) {
      const auto there = p.other_form ? files.find(p.other_form->name) : files.end();
      if (there == files.end()) continue;
      const format::TensorSlice stored = p.other_form->whole(p.shape);
      if (files.contains(p.name) || there->second.global_shape != stored.global_shape) {
        doubtful.insert(stored.name);
      }
      found[stored.name].push_back(
          {p.whole(), false, {{stored, false, p.shape[0], *p.other_form}}});
    }
  }
  std::vector<Made> made;
  for (auto& [name, parameters] : found) {
    if (doubtful.contains(name)) continue;
    std::ranges::move(parameters, std::back_inserter(made));
  }
  return made;
}

SharedSource with_usual_names(const SharedSource& source, const ModelDescription& model) {
  std::string prefix = model.optional_prefix;
  const std::vector<format::TensorSlice> tensors = source->tensors();
  const bool there = std::ranges::any_of(tensors, [&](const format::TensorSlice& tensor) {
    return tensor.name.starts_with(prefix);
  });
  if (there) prefix.clear();
  Names names;
  for (const format::TensorSlice& tensor : tensors) names.emplace(tensor.name, tensor);
  std::vector<Made> made = made_of_other_forms(model, names);
  for (const format::TensorSlice& tensor : tensors) {
    std::string name = usual_name(tensor.name, model, prefix);
    if (name != tensor.name) made.push_back(renamed(tensor, std::move(name)));
  }
  if (made.empty()) return source;
  return std::make_shared<MappedSource>(source, std::move(made), false);
}

SharedSource parameters_from_files(const SharedSource& files,
                                   const ModelDescription& model) {
  std::vector<Made> made;
  for (const ParameterDescription* p : parameters_of_other_form(model)) {
    made.push_back(
        {p->whole(),
         false,
         {{p->stored_whole(), p->stored->transposed, p->shape[0], *p->stored}}});
  }
  if (made.empty()) return files;
  return std::make_shared<MappedSource>(files, std::move(made), true);
}

/// Returns a source with the tensors of files, which are made of the parameters that
/// have the form `of`.
SharedSource files_from_parameters(const SharedSource& source,
                                   const ModelDescription& model,
                                   std::optional<StoredForm> ParameterDescription::* of) {
  std::map<std::string, Made> made;
  for (const ParameterDescription& p : model.parameters()) {
    const std::optional<StoredForm>& form = p.*of;
    if (!form) continue;
    Made& one = made[form->name];
    one.whole = form->whole(p.shape);
    one.transposed = form->transposed;
    one.pieces.push_back({p.whole(), false, p.shape[0], *form, true});
  }
  if (made.empty()) return source;
  std::vector<Made> all;
  for (auto& [name, one] : made) all.push_back(std::move(one));
  return std::make_shared<MappedSource>(source, std::move(all), false);
}

bool is_files(const WeightsSource& source) {
  return source.source().kind == ModelSource::Kind::HfDirectory;
}

}  // namespace

SharedSource as_parameters(const SharedSource& source, const ModelDescription& model) {
  if (!is_files(*source)) return source;
  return parameters_from_files(with_usual_names(source, model), model);
}

SharedSource as_hugging_face(const SharedSource& source, const ModelDescription& model) {
  // An adapter's tensors have the same form in files.
  if (const auto* adapted = dynamic_cast<const AdaptedBase*>(source.get())) {
    return adapted->on(as_hugging_face(adapted->base(), model));
  }
  // Goes back to the files from which as_parameters has made this source.
  const auto* mapped = dynamic_cast<const MappedSource*>(source.get());
  if (mapped != nullptr) return mapped->parameters() ? mapped->inner() : source;
  if (is_files(*source)) return with_usual_names(source, model);
  return files_from_parameters(source, model, &ParameterDescription::stored);
}

SharedSource as_adapter_files(const SharedSource& source, const ModelDescription& model) {
  return files_from_parameters(source, model, &ParameterDescription::other_form);
}

void check_weights(const SharedSource& source, const ModelDescription& model) {
  if (is_files(*source)) {
    as_hugging_face(source, model)->check(model.stored_tensors(), model.spare_names());
  } else {
    source->check(model.tensors(), model.spare_names());
  }
}

}  // namespace longhaul::checkpoint
