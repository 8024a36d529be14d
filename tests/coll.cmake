tandem_test(conformance coll_collectives SOURCES conformance/coll_collectives_test.cpp DEPENDS coll backend
            LIBRARIES GTest::gtest_main)
tandem_test(error coll_arguments SOURCES error/coll_arguments_test.cpp DEPENDS coll backend LIBRARIES GTest::gtest_main)
tandem_test(race coll_collectives SOURCES race/coll_collectives_race_test.cpp DEPENDS coll backend
            LIBRARIES GTest::gtest_main)
tandem_test(dist coll_processes SOURCES dist/coll_processes_test.cpp DEPENDS coll backend LIBRARIES tandem_test_support
            TIMEOUT 300)
tandem_test(unit coll_sum_in_place SOURCES unit/coll_sum_in_place_test.cpp DEPENDS coll_cpu backend
            LIBRARIES GTest::gtest_main)
if(TANDEM_HAS_CUDA)
  tandem_test(unit coll_cuda_layer_sum SOURCES unit/coll_cuda_layer_sum_test.cpp DEPENDS coll_cuda
              LIBRARIES CUDA::cudart_static GTest::gtest_main)
endif()
