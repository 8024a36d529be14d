tandem_test(unit coll SOURCES unit/coll_algorithms_test.cpp unit/coll_orphaned_memory_test.cpp unit/coll_where_they_lie_test.cpp
            DEPENDS coll_cpu backend)
if(TANDEM_HAS_CUDA)
  tandem_test(unit coll SOURCES unit/coll_cuda_algorithms_test.cpp unit/coll_cuda_layer_sum_test.cpp unit/coll_cuda_mailboxes_test.cpp DEPENDS coll_cuda
              LIBRARIES ${TANDEM_CUDART})
endif()
if(TANDEM_SIMULATES_GPUS)
  tandem_test(unit copy_engines SOURCES unit/coll_copy_engines_test.cpp DEPENDS coll backend LIBRARIES tandem_simulated_gpu)
endif()
tandem_test(conformance coll SOURCES conformance/coll_collectives_test.cpp conformance/coll_low_contention_test.cpp conformance/coll_random_groups_test.cpp DEPENDS fused backend)
tandem_test(error coll SOURCES error/coll_arguments_test.cpp error/coll_circle_of_waits_test.cpp DEPENDS fused backend
            LIBRARIES tandem_test_support)
tandem_test(race coll
            SOURCES race/coll_collectives_race_test.cpp race/coll_two_groups_race_test.cpp
                    error/coll_circle_of_waits_test.cpp
            DEPENDS fused backend LIBRARIES tandem_test_support)
tandem_test(dist coll SOURCES dist/coll_processes_test.cpp dist/coll_two_groups_test.cpp DEPENDS fused backend
            LIBRARIES tandem_test_support TIMEOUT 300)

find_package(Python3 COMPONENTS Interpreter REQUIRED)
# No race detector sees device code: the orders are looked up in the PTX, and in that of mutants.
if(TANDEM_HAS_NVCC)
  foreach(name coll_ptx_orders coll_ptx_exchanges)
    add_test(NAME unit.${name} COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/unit/${name}_test.py
                                       ${CMAKE_CUDA_COMPILER} ${PROJECT_SOURCE_DIR})
    set_tests_properties(unit.${name} PROPERTIES LABELS unit TIMEOUT 900)
  endforeach()
endif()
