#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

// The runtime's opaque types, in its own names.

namespace tandem::simulated {

using Work = std::function<void()>;

/// A place in a stream that is passed once.
class Mark {
 public:
  void pass();
  void wait() const;
  [[nodiscard]] bool is_passed() const;
  [[nodiscard]] std::chrono::steady_clock::time_point time() const { return time_; }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable passed_;
  bool is_passed_ = false;
  std::chrono::steady_clock::time_point time_;
};

/// Work in order, done by a host thread that outlives the stream until all of it is done.
class Queue : public std::enable_shared_from_this<Queue> {
 public:
  void add(Work work);
  [[nodiscard]] bool is_empty() const;
  void wait_until_empty() const;
  /// The thread ends behind what is left.
  void close();

 private:
  void run();

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::deque<Work> works_;
  bool has_thread_ = false;
  bool is_busy_ = false;
  bool is_closed_ = false;
};

}  // namespace tandem::simulated

/// A graph: its nodes in the order of their recording, which is one that they can run in.
struct CUgraph_st {
  struct Node {
    tandem::simulated::Work work;
    std::vector<int> behind;  ///< nodes that have to end first
    const CUstream_st* lane = nullptr;
  };
  std::vector<Node> nodes;
};

struct CUgraphExec_st {
  std::shared_ptr<const CUgraph_st> graph;
  std::shared_ptr<std::mutex> running = std::make_shared<std::mutex>();
};

namespace tandem::simulated {

struct Capture {
  CUstream_st* origin = nullptr;
  std::shared_ptr<CUgraph_st> graph = std::make_shared<CUgraph_st>();
  std::vector<CUstream_st*> joined;
  std::vector<int> left_nodes;  ///< the last ones of streams that have joined and are gone
  bool is_broken = false;
  bool is_over = false;
};

/// Runs a graph once: streams of the recording side by side, each in its order.
void run_graph(const CUgraph_st& graph);

}  // namespace tandem::simulated

struct CUstream_st {
  int gpu = 0;
  std::shared_ptr<tandem::simulated::Queue> queue = std::make_shared<tandem::simulated::Queue>();
  std::shared_ptr<tandem::simulated::Capture> capture;
  std::vector<int> last_nodes;  ///< what the next node of this stream comes behind

  /// Now, or as a node of the graph that it records.
  void enqueue(tandem::simulated::Work work);
};

struct CUevent_st {
  int gpu = 0;
  std::shared_ptr<tandem::simulated::Mark> mark;  ///< null: never recorded
  std::shared_ptr<tandem::simulated::Capture> capture;
  std::vector<int> nodes;  ///< of the capture
};
