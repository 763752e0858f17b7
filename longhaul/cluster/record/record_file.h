#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "longhaul/base/file.h"
#include "longhaul/base/json.h"
#include "longhaul/system/log.h"

namespace longhaul::cluster {

/// One JSON file in which the supervisors of a run keep what must outlive them: restarts,
/// requeues, nodes that are left out, nodes that were handed to Slurm.
class RecordFile {
 public:
  /// `what` and `advice` are for the error "PATH: is no WHAT (...); ADVICE".
  RecordFile(fs::path path, std::string what, std::string advice = "remove it")
      : path_(std::move(path)), what_(std::move(what)), advice_(std::move(advice)) {}

  /// Returns what the file holds, or an empty Value if there is no file. Throws
  /// InputError for a damaged file, with its path.
  template <typename Value>
  Value read() const {
    return taken([&]() -> Value {
      const std::optional<Json> json = load();
      return json ? json->template get<Value>() : Value();
    });
  }
  /// Reads a record whose field "job" names the job that it counts for. Returns nothing
  /// if there is no file, if the record is another job's, and for an empty `job`, when a
  /// person has started this run.
  template <typename Value>
  std::optional<Value> read_of(const std::string& job) const {
    return taken([&]() -> std::optional<Value> {
      const std::optional<Json> json = job.empty() ? std::nullopt : load();
      if (!json || json->at("job") != job) return std::nullopt;
      return json->template get<Value>();
    });
  }
  /// Replaces the file: a reader, also one after a power cut, sees the old or the new
  /// content. Makes the directory if it is absent.
  void replace(const Json& value, int indent = -1) const;

 private:
  std::optional<Json> load() const;
  [[noreturn]] void refuse(const Json::exception& problem) const;
  template <typename Work>
  auto taken(const Work& work) const {
    try {
      return work();
    } catch (const Json::exception& problem) {
      refuse(problem);
    }
  }

  fs::path path_;
  std::string what_;
  std::string advice_;
};

/// Runs `work`, which reads or writes records. Returns false if `work` fails, after a
/// warning "PROBLEM; CONSEQUENCE": a supervisor does not end because of a record.
bool try_record(system::Logger& log, const std::string& consequence,
                const std::function<void()>& work);

}  // namespace longhaul::cluster
