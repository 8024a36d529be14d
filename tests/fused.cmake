add_library(test_fused_harness STATIC conformance/fused_harness.cpp)
target_include_directories(test_fused_harness PUBLIC ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(test_fused_harness PUBLIC tandem_harness tandem::fused tandem::backend GTest::gtest PRIVATE tandem_options)

tandem_test(conformance fused
            SOURCES conformance/fused_all_gather_matmul_test.cpp conformance/fused_all_gather_scaled_matmul_test.cpp
                    conformance/fused_batch_invariant_test.cpp
                    conformance/fused_graph_test.cpp conformance/fused_layout_test.cpp
                    conformance/fused_matmul_all_reduce_test.cpp conformance/fused_matmul_reduce_scatter_test.cpp
                    conformance/fused_measured_choice_test.cpp conformance/fused_native_recorded_test.cpp conformance/fused_native_test.cpp
                    conformance/fused_order_test.cpp conformance/fused_replays_test.cpp
                    conformance/fused_scaled_matmul_reduce_scatter_test.cpp
            DEPENDS fused backend LIBRARIES test_fused_harness)
# Ranks of several hosts, as threads with a wire between them.
tandem_test(conformance hosts SOURCES conformance/fused_across_hosts_test.cpp DEPENDS fused backend LIBRARIES test_fused_harness)
if(TANDEM_SIMULATES_GPUS AND TANDEM_NCCL_INCLUDE_DIR)
  # It calls the simulated runtime, which is in the test.
  add_library(simulated_nccl SHARED simulated_gpu/nccl.cpp)
  target_link_libraries(simulated_nccl PRIVATE tandem_options)
  target_include_directories(simulated_nccl SYSTEM PRIVATE ${TANDEM_NCCL_INCLUDE_DIR} ${CUDAToolkit_INCLUDE_DIRS})
  tandem_test(conformance hosts SOURCES conformance/fused_by_nccl_test.cpp)
  target_compile_definitions(test_conformance_hosts PRIVATE TANDEM_SIMULATED_NCCL="$<TARGET_FILE:simulated_nccl>")
  set_target_properties(test_conformance_hosts PROPERTIES ENABLE_EXPORTS ON)
  add_dependencies(test_conformance_hosts simulated_nccl)
endif()
add_executable(hosts_rank dist/hosts_rank.cpp)
target_link_libraries(hosts_rank PRIVATE test_fused_harness tandem_options)
find_package(Python3 REQUIRED COMPONENTS Interpreter)
add_test(NAME dist.hosts COMMAND Python3::Interpreter -B ${CMAKE_CURRENT_LIST_DIR}/dist/hosts_test.py $<TARGET_FILE:hosts_rank>
                                  $<$<TARGET_EXISTS:tandem_cli>:$<TARGET_FILE:tandem_cli>>)
set_tests_properties(dist.hosts PROPERTIES LABELS dist TIMEOUT 900 SKIP_RETURN_CODE 77 RUN_SERIAL ON)
tandem_test(error fused
            SOURCES error/fused_arguments_test.cpp error/fused_mismatch_test.cpp error/fused_scaled_arguments_test.cpp
            DEPENDS fused backend LIBRARIES test_fused_harness)
tandem_test(unit fused
            SOURCES unit/fused_another_algorithm_test.cpp unit/fused_choose_test.cpp unit/fused_core_speeds_test.cpp
                    unit/fused_forecast_test.cpp unit/fused_max_plans_test.cpp unit/fused_measure_gpus_test.cpp unit/fused_native_chunks_test.cpp unit/fused_prepared_products_test.cpp
                    unit/fused_pushed_scatter_test.cpp unit/fused_repeated_calls_test.cpp unit/fused_scaled_sums_test.cpp race/fused_inbox_test.cpp
            DEPENDS fused backend LIBRARIES test_fused_harness)
# What all ops look at for NaN, in an executable of its own.
tandem_test(unit nan_check SOURCES unit/base_nan_rule_test.cpp unit/coll_nan_check_test.cpp unit/fused_nan_check_test.cpp
            DEPENDS coll_cpu fused backend LIBRARIES tandem_test_support)
if(TANDEM_HAS_CUDA)
  tandem_test(unit fused SOURCES unit/fused_shared_gpu_test.cpp DEPENDS device_cuda LIBRARIES ${TANDEM_CUDART})
  # Apart from the others: this program is a profiler, and every device that it opens is heard.
  tandem_test(unit profiler SOURCES unit/fused_profiler_test.cpp DEPENDS fused backend
              LIBRARIES test_fused_harness CUDA::nvtx3 ${TANDEM_CUDART})
endif()
tandem_test(unit repeat_path SOURCES unit/fused_graph_cache_test.cpp unit/fused_repeat_path_test.cpp DEPENDS fused backend
            LIBRARIES test_fused_harness)
# Ranks as threads, streams under skew and the inbox of native gathers from inside, under the thread sanitizer.
tandem_test(race fused SOURCES conformance/fused_order_test.cpp race/fused_inbox_test.cpp DEPENDS fused backend
            LIBRARIES test_fused_harness)
tandem_test(fault fused
            SOURCES fault/every_call.cpp fault/fused_broken_stream_test.cpp fault/fused_early_return_test.cpp
                    fault/fused_first_to_leave_test.cpp fault/fused_late_rank_test.cpp fault/fused_lost_rank_test.cpp
                    fault/fused_queued_at_end_test.cpp
            DEPENDS fused backend LIBRARIES test_fused_harness tandem_test_support)

find_package(Python3 COMPONENTS Interpreter REQUIRED)
add_test(NAME unit.fused_native_slots_model
         COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/models/native_slots.py)
set_tests_properties(unit.fused_native_slots_model PROPERTIES LABELS unit TIMEOUT 120)
add_test(NAME unit.fused_pulled_slots_model
         COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/models/pulled_slots.py)
set_tests_properties(unit.fused_pulled_slots_model PROPERTIES LABELS unit TIMEOUT 120)
