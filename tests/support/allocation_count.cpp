#include "support/allocation_count.hpp"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {
std::atomic<std::int64_t> allocation_count{0};
}  // namespace

namespace tandem::test {

std::int64_t num_allocations() {
  return allocation_count;
}

}  // namespace tandem::test

void* operator new(std::size_t num_bytes) {
  ++allocation_count;
  if (void* memory = std::malloc(num_bytes)) return memory;
  throw std::bad_alloc();
}
void* operator new[](std::size_t num_bytes) {
  return operator new(num_bytes);
}
void* operator new(std::size_t num_bytes, const std::nothrow_t&) noexcept {
  ++allocation_count;
  return std::malloc(num_bytes);
}
void* operator new[](std::size_t num_bytes, const std::nothrow_t& tag) noexcept {
  return operator new(num_bytes, tag);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}
