#pragma once

#include <string>
#include <vector>

#include "longhaul/config/field.h"
#include "longhaul/config/run_config.h"

namespace longhaul {

// One visitor per struct. The fields point into the section, which must outlive them.
config::Fields fields_of(RunSection& section);
config::Fields fields_of(ModelSection& section);
config::Fields fields_of(InitSection& section);
config::Fields fields_of(DataSection& section);
config::Fields fields_of(BatchSection& section);
config::Fields fields_of(ParallelSection& section);
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
config::Fields fields_of(TrainSource& item);
config::Fields fields_of(WeightsFrom& item);
config::Fields fields_of(ValidationSource& item);
config::Fields fields_of(ParameterGroup& item);
config::Fields fields_of(CaptureSettings& item);
config::Fields fields_of(DebugFault& item);
config::Fields fields_of(DebugDelay& item);

// The rule between the fields of one inline table. ConfigError at `where`.
void check_item(const TrainSource& item, const std::string& where,
                const std::string& name);
void check_item(const WeightsFrom& item, const std::string& where,
                const std::string& name);
void check_item(const ValidationSource& item, const std::string& where,
                const std::string& name);
void check_item(const ParameterGroup& item, const std::string& where,
                const std::string& name);
void check_item(const CaptureSettings& item, const std::string& where,
                const std::string& name);
void check_item(const DebugFault& item, const std::string& where,
                const std::string& name);
void check_item(const DebugDelay& item, const std::string& where,
                const std::string& name);

namespace config {

struct SectionFields {
  std::string name;
  std::string meaning;
  Fields fields;
};

/// Every section of a configuration, in the order of the reference.
std::vector<SectionFields> sections_of(RunConfig& config);

/// "section.key" of every field.
std::vector<std::string> all_names(const std::vector<SectionFields>& sections);

}  // namespace config
}  // namespace longhaul
