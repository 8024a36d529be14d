add_library(test_device_backends STATIC conformance/device_backends.cpp)
target_include_directories(test_device_backends PUBLIC ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(test_device_backends PUBLIC tandem::backend GTest::gtest PRIVATE tandem_options)
if(TANDEM_HAS_CUDA)
  target_compile_definitions(test_device_backends PRIVATE TANDEM_HAS_CUDA)
  target_link_libraries(test_device_backends PRIVATE ${TANDEM_CUDART})
endif()

foreach(part IN ITEMS order fault copy words memory lifetime graph)
  tandem_test(conformance device_${part} SOURCES conformance/device_${part}_test.cpp DEPENDS backend
              LIBRARIES test_device_backends GTest::gtest_main)
endforeach()
foreach(part IN ITEMS arguments cpu)
  tandem_test(error device_${part} SOURCES error/device_${part}_test.cpp DEPENDS backend
              LIBRARIES test_device_backends GTest::gtest_main)
endforeach()
tandem_test(unit device_deferred_frees SOURCES unit/device_deferred_frees_test.cpp DEPENDS device LIBRARIES GTest::gtest_main)
foreach(part IN ITEMS copy_plan processor)
  tandem_test(unit device_${part} SOURCES unit/device_${part}_test.cpp DEPENDS device_cpu LIBRARIES GTest::gtest_main)
endforeach()
tandem_test(unit device_repeat_path SOURCES unit/device_repeat_path_test.cpp support/allocation_count.cpp
            DEPENDS device_cpu LIBRARIES GTest::gtest_main)
tandem_test(race device_streams SOURCES race/device_streams_test.cpp DEPENDS device_cpu LIBRARIES GTest::gtest_main)
if(TANDEM_HAS_CUDA)
  tandem_test(unit device_watch_list SOURCES unit/device_watch_list_test.cpp DEPENDS device_cuda
              LIBRARIES GTest::gtest_main)
  tandem_test(unit device_shared_gpu SOURCES unit/device_shared_gpu_test.cpp DEPENDS device_cuda
              LIBRARIES ${TANDEM_CUDART} GTest::gtest_main)
  tandem_test(unit device_strided_copy SOURCES unit/device_strided_copy_test.cpp DEPENDS device_cpu device_cuda
              LIBRARIES ${TANDEM_CUDART} GTest::gtest_main)
endif()
