#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <tandem/backend/backend.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/bootstrap/launcher.hpp>
#include <tandem/device/device.hpp>
#include <vector>

#include "placement.hpp"
#include "tracing.hpp"

namespace tandem::cli {

/// What a rank needs to run ops: its device, the group of all ranks, and a stream.
class Session {
 public:
  /// `name` is the same on every rank; two sessions of a job may exist one after the other.
  Session(const RankContext& context, const Config& config, const std::string& name);
  /// Asks the stream for its fault: if there is one, the error that ends this session tells of it.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  [[nodiscard]] int rank() const { return group_->rank(); }
  [[nodiscard]] int size() const { return group_->size(); }
  [[nodiscard]] Device& device() const { return *device_; }
  [[nodiscard]] Group& group() const { return *group_; }
  [[nodiscard]] Stream& stream() const { return *stream_; }
  [[nodiscard]] const Placement& placement() const { return placement_; }
  /// Whether what ranks send each other takes a way of its own.
  [[nodiscard]] bool has_link() const { return placement_.has_link() || group_->num_hosts() > 1; }
  /// "no link: copies run inside the ranks' own cores", "2 hosts: NCCL 2.28.9 carries rows between them".
  [[nodiscard]] std::string link_in_words() const;
  /// What carries rows between hosts: "NCCL 2.28.9". Empty where all ranks are on one.
  [[nodiscard]] std::string transport() const {
    return transport_ != nullptr && group_->num_hosts() > 1 ? transport_->name() : "";
  }

  /// Blocks until every rank is here.
  void meet(std::string_view what) const;
  /// Every rank's number, in rank order.
  [[nodiscard]] std::vector<double> exchange(double mine, std::string_view what) const;
  /// Blocks until the stream's work is done.
  void finish() const;
  /// Collective, at the end: tells the launcher when the steps ran, if it has asked for that.
  void tell_trace() const;

 private:
  RankContext context_;
  Placement placement_;
  // In this order: the stream ends first, then the group lets go of memory of the device.
  std::unique_ptr<Device> device_;
  std::shared_ptr<Timeline> timeline_;    // null: nobody asks
  std::shared_ptr<Transport> transport_;  // null: all ranks are on one host
  std::unique_ptr<Group> group_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace tandem::cli
