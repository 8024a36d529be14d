#pragma once

#include <string>
#include <tandem/device/stream.hpp>

namespace tandem {

/// A profiler that shows the names of streams and ranges: a service that devices have while one listens, and
/// only then. So names are made for somebody who reads them.
class Profiler {
 public:
  virtual ~Profiler() = default;

  /// From now on the profiler calls `stream` so.
  virtual void name_stream(Stream& stream, const std::string& name) = 0;
};

}  // namespace tandem
