add_library(test_fused_harness STATIC conformance/fused_harness.cpp)
target_include_directories(test_fused_harness PUBLIC ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(test_fused_harness PUBLIC tandem::fused tandem::backend GTest::gtest PRIVATE tandem_options)

foreach(part IN ITEMS all_gather_matmul matmul_reduce_scatter all_gather_scaled_matmul scaled_matmul_reduce_scatter order
        layout graph replays measured_choice native_recorded)
  tandem_test(conformance fused_${part} SOURCES conformance/fused_${part}_test.cpp DEPENDS fused backend
              LIBRARIES test_fused_harness GTest::gtest_main)
endforeach()
foreach(part IN ITEMS arguments scaled_arguments mismatch)
  tandem_test(error fused_${part} SOURCES error/fused_${part}_test.cpp DEPENDS fused backend
              LIBRARIES test_fused_harness GTest::gtest_main)
endforeach()
tandem_test(unit fused_choose SOURCES unit/fused_choose_test.cpp DEPENDS fused LIBRARIES GTest::gtest_main)
tandem_test(unit fused_core_speeds SOURCES unit/fused_core_speeds_test.cpp DEPENDS fused backend
            LIBRARIES GTest::gtest_main)
tandem_test(unit fused_native_chunks SOURCES unit/fused_native_chunks_test.cpp DEPENDS fused backend
            LIBRARIES GTest::gtest_main)
tandem_test(unit fused_another_algorithm SOURCES unit/fused_another_algorithm_test.cpp DEPENDS fused backend
            LIBRARIES test_fused_harness GTest::gtest_main)
tandem_test(unit fused_repeated_calls SOURCES unit/fused_repeated_calls_test.cpp DEPENDS fused backend
            LIBRARIES test_fused_harness GTest::gtest_main)
tandem_test(unit fused_prepared_products SOURCES unit/fused_prepared_products_test.cpp DEPENDS fused backend
            LIBRARIES test_fused_harness GTest::gtest_main)
tandem_test(unit fused_max_plans SOURCES unit/fused_max_plans_test.cpp DEPENDS fused backend
            LIBRARIES test_fused_harness GTest::gtest_main)
tandem_test(unit fused_repeat_path SOURCES unit/fused_repeat_path_test.cpp support/allocation_count.cpp DEPENDS fused backend
            LIBRARIES test_fused_harness GTest::gtest_main)
tandem_test(unit fused_graph_cache SOURCES unit/fused_graph_cache_test.cpp support/allocation_count.cpp DEPENDS fused
            LIBRARIES GTest::gtest_main)
tandem_test(conformance fused_native SOURCES conformance/fused_native_test.cpp DEPENDS fused backend
            LIBRARIES test_fused_harness GTest::gtest_main)
# The same programs under the thread sanitizer: ranks as threads, streams under skew.
tandem_test(race fused_order SOURCES conformance/fused_order_test.cpp DEPENDS fused backend
            LIBRARIES test_fused_harness GTest::gtest_main)
tandem_test(fault fused_lost_rank SOURCES fault/fused_lost_rank_test.cpp DEPENDS fused backend
            LIBRARIES test_fused_harness tandem_test_support)
tandem_test(fault fused_late_rank SOURCES fault/fused_late_rank_test.cpp DEPENDS fused backend
            LIBRARIES test_fused_harness GTest::gtest_main)
tandem_test(fault fused_queued_at_end SOURCES fault/fused_queued_at_end_test.cpp DEPENDS fused backend
            LIBRARIES test_fused_harness GTest::gtest_main)
tandem_test(fault fused_early_return SOURCES fault/fused_early_return_test.cpp DEPENDS fused backend
            LIBRARIES test_fused_harness GTest::gtest_main)
tandem_test(fault fused_broken_stream SOURCES fault/fused_broken_stream_test.cpp DEPENDS fused backend
            LIBRARIES test_fused_harness GTest::gtest_main)
# The native gather from inside: once more, and faster, than under the thread sanitizer.
foreach(class IN ITEMS unit race)
  tandem_test(${class} fused_inbox SOURCES race/fused_inbox_test.cpp DEPENDS fused backend
              LIBRARIES GTest::gtest_main)
endforeach()

find_package(Python3 COMPONENTS Interpreter REQUIRED)
add_test(NAME unit.fused_native_slots_model
         COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/models/native_slots.py)
set_tests_properties(unit.fused_native_slots_model PROPERTIES LABELS unit TIMEOUT 120)
