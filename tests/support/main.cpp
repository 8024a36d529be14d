#include <gtest/gtest.h>

#include <cstdio>
#include <tandem/bootstrap/launcher.hpp>

#include "backend/for_tools.hpp"
#include "support/rank_main.hpp"

int main(int argc, char** argv) {
  tandem::prepare_shared_gpu();
  const auto context = tandem::join_job(argc, argv);
  if (!context) {
    std::fprintf(stderr, "%s\n", context.error().to_string().c_str());
    return 1;
  }
  if (*context) return tandem::testing::run_rank(**context, argc, argv);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
