tandem_test(unit gemm_tile SOURCES unit/gemm_tile_test.cpp DEPENDS gemm_cpu LIBRARIES GTest::gtest_main)
