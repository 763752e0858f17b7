#pragma once

#include <string>
#include <vector>

#include "longhaul/config/field.h"
#include "longhaul/config/run_config.h"

namespace longhaul {

// Each function returns the fields of a struct. The fields point into the struct, which
// must outlive the fields.
config::Fields fields_of(RunSection& section);
config::Fields fields_of(ModelSection& section);
config::Fields fields_of(InitSection& section);
config::Fields fields_of(AdapterSection& section);
config::Fields fields_of(DataSection& section);
config::Fields fields_of(BatchSection& section);
config::Fields fields_of(ParallelSection& section);
config::Fields fields_of(ExpertsSection& section);
config::Fields fields_of(PreferenceSection& section);
config::Fields fields_of(MemorySection& section);
config::Fields fields_of(PrecisionSection& section);
config::Fields fields_of(OptimizerSection& section);
config::Fields fields_of(ScheduleSection& section);
config::Fields fields_of(CheckpointSection& section);
config::Fields fields_of(LogSection& section);
config::Fields fields_of(ValidationSection& section);
config::Fields fields_of(ResilienceSection& section);
config::Fields fields_of(ProfileSection& section);
config::Fields fields_of(DebugSection& section);
// Inline tables.
config::Fields fields_of(ExpectedRate& item);
config::Fields fields_of(ChosenLayout& item);
config::Fields fields_of(GoldenLoss& item);
config::Fields fields_of(GoldenLosses& item);
config::Fields fields_of(TrainSource& item);
config::Fields fields_of(WeightsFrom& item);
config::Fields fields_of(ValidationSource& item);
config::Fields fields_of(TaskSource& item);
config::Fields fields_of(ParameterGroup& item);
config::Fields fields_of(CaptureSettings& item);
config::Fields fields_of(DebugFault& item);
config::Fields fields_of(DebugDelay& item);

// Each function returns what is wrong with the combination of fields in one inline table,
// as it follows the table's name in a message; an empty text if nothing is wrong.
std::string problem_of(const ExpectedRate& item);
std::string problem_of(const ChosenLayout& item);
std::string problem_of(const GoldenLoss& item);
std::string problem_of(const GoldenLosses& item);
std::string problem_of(const TrainSource& item);
std::string problem_of(const WeightsFrom& item);
std::string problem_of(const ValidationSource& item);
std::string problem_of(const TaskSource& item);
std::string problem_of(const ParameterGroup& item);
std::string problem_of(const CaptureSettings& item);
std::string problem_of(const DebugFault& item);
std::string problem_of(const DebugDelay& item);

namespace config {

struct SectionFields {
  std::string name;
  std::string meaning;
  Fields fields;
};

/// Returns every section of a configuration, in the order of the reference.
std::vector<SectionFields> sections_of(RunConfig& config);

/// Returns "section.key" of every field.
std::vector<std::string> all_names(const std::vector<SectionFields>& sections);

}  // namespace config
}  // namespace longhaul
