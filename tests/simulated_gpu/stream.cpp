#include "stream.hpp"

#include <map>
#include <thread>
#include <utility>

namespace tandem::simulated {

void Mark::pass() {
  const std::lock_guard lock(mutex_);
  time_ = std::chrono::steady_clock::now();
  is_passed_ = true;
  passed_.notify_all();
}

void Mark::wait() const {
  std::unique_lock lock(mutex_);
  passed_.wait(lock, [this] { return is_passed_; });
}

bool Mark::is_passed() const {
  const std::lock_guard lock(mutex_);
  return is_passed_;
}

void Queue::add(Work work) {
  const std::lock_guard lock(mutex_);
  works_.push_back(std::move(work));
  if (!has_thread_) std::thread([self = shared_from_this()] { self->run(); }).detach();
  has_thread_ = true;
  changed_.notify_all();
}

bool Queue::is_empty() const {
  const std::lock_guard lock(mutex_);
  return works_.empty() && !is_busy_;
}

void Queue::wait_until_empty() const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return works_.empty() && !is_busy_; });
}

void Queue::close() {
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
  changed_.notify_all();
}

void Queue::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return !works_.empty() || is_closed_; });
    if (works_.empty()) return;
    is_busy_ = true;
    Work work = std::move(works_.front());
    works_.pop_front();
    lock.unlock();
    work();
    work = nullptr;  // what it keeps goes before the stream is seen to be done
    lock.lock();
    is_busy_ = false;
    changed_.notify_all();
  }
}

void run_graph(const CUgraph_st& graph) {
  std::vector<Mark> done(graph.nodes.size());
  std::map<const CUstream_st*, std::vector<std::size_t>> lanes;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) lanes[graph.nodes[i].lane].push_back(i);
  std::vector<std::jthread> threads;
  for (const auto& lane : lanes) {
    threads.emplace_back([&graph, &done, &nodes = lane.second] {
      for (const std::size_t i : nodes) {
        for (const int before : graph.nodes[i].behind) done[static_cast<std::size_t>(before)].wait();
        graph.nodes[i].work();
        done[i].pass();
      }
    });
  }
}

}  // namespace tandem::simulated

void CUstream_st::enqueue(tandem::simulated::Work work) {
  if (!capture) {
    queue->add(std::move(work));
    return;
  }
  auto& nodes = capture->graph->nodes;
  nodes.push_back({.work = std::move(work), .behind = last_nodes, .lane = this});
  last_nodes = {static_cast<int>(nodes.size()) - 1};
}
