tandem_test(conformance coll_collectives SOURCES conformance/coll_collectives_test.cpp DEPENDS coll backend
            LIBRARIES GTest::gtest_main)
tandem_test(error coll_arguments SOURCES error/coll_arguments_test.cpp DEPENDS coll backend LIBRARIES GTest::gtest_main)
tandem_test(race coll_collectives SOURCES race/coll_collectives_race_test.cpp DEPENDS coll backend
            LIBRARIES GTest::gtest_main)
tandem_test(race coll_two_groups SOURCES race/coll_two_groups_race_test.cpp DEPENDS fused backend
            LIBRARIES GTest::gtest_main)
tandem_test(dist coll_two_groups SOURCES dist/coll_two_groups_test.cpp DEPENDS fused backend
            LIBRARIES tandem_test_support TIMEOUT 300)
foreach(class IN ITEMS error race)
  tandem_test(${class} coll_circle_of_waits SOURCES error/coll_circle_of_waits_test.cpp DEPENDS fused backend
              LIBRARIES tandem_test_support)
endforeach()
tandem_test(dist coll_processes SOURCES dist/coll_processes_test.cpp DEPENDS coll backend LIBRARIES tandem_test_support
            TIMEOUT 300)
tandem_test(unit coll_where_they_lie SOURCES unit/coll_where_they_lie_test.cpp DEPENDS coll_cpu backend
            LIBRARIES GTest::gtest_main)
tandem_test(unit coll_orphaned_memory SOURCES unit/coll_orphaned_memory_test.cpp DEPENDS coll LIBRARIES GTest::gtest_main)
find_package(Python3 COMPONENTS Interpreter REQUIRED)
if(TANDEM_HAS_CUDA)
  tandem_test(unit coll_cuda_layer_sum SOURCES unit/coll_cuda_layer_sum_test.cpp DEPENDS coll_cuda
              LIBRARIES ${TANDEM_CUDART} GTest::gtest_main)
  tandem_test(unit coll_cuda_mailboxes SOURCES unit/coll_cuda_mailboxes_test.cpp DEPENDS coll_cuda
              LIBRARIES ${TANDEM_CUDART} GTest::gtest_main)
endif()
# No race detector sees device code: the orders are looked up in the PTX, and in that of mutants.
if(TANDEM_HAS_NVCC)
  foreach(name coll_ptx_orders coll_ptx_exchanges)
    add_test(NAME unit.${name} COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/unit/${name}_test.py
                                       ${CMAKE_CUDA_COMPILER} ${PROJECT_SOURCE_DIR})
    set_tests_properties(unit.${name} PROPERTIES LABELS unit TIMEOUT 300)
  endforeach()
endif()
