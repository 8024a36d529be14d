#pragma once

#include <string>
#include <tandem/bootstrap/flight_record.hpp>

namespace tandem::cli {

/// A flight record from the file that a failed group has left. Throws exit 2 for a file that holds none.
[[nodiscard]] FlightRecord read_flight_record(const std::string& path);

/// How far each rank came, and where the ranks part, for people.
[[nodiscard]] std::string describe(const FlightRecord& record);

}  // namespace tandem::cli
