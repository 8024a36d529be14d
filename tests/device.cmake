add_library(test_device_backends STATIC conformance/device_backends.cpp)
target_include_directories(test_device_backends PUBLIC ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(test_device_backends PUBLIC tandem::backend GTest::gtest PRIVATE tandem_options)
if(TANDEM_HAS_CUDA)
  target_compile_definitions(test_device_backends PRIVATE TANDEM_HAS_CUDA)
  target_link_libraries(test_device_backends PRIVATE ${TANDEM_CUDART})
endif()

tandem_test(conformance device
            SOURCES conformance/device_copy_test.cpp conformance/device_fault_test.cpp
                    conformance/device_graph_test.cpp conformance/device_lifetime_test.cpp
                    conformance/device_memory_test.cpp conformance/device_order_test.cpp
                    conformance/device_words_test.cpp
            DEPENDS backend LIBRARIES test_device_backends)
tandem_test(error device SOURCES error/device_arguments_test.cpp error/device_cpu_test.cpp DEPENDS backend
            LIBRARIES test_device_backends)
tandem_test(unit device
            SOURCES unit/device_copy_plan_test.cpp unit/device_core_peaks_test.cpp unit/device_deferred_frees_test.cpp
                    unit/device_processor_test.cpp
            DEPENDS device_cpu)
tandem_test(unit stamps SOURCES unit/device_stamps_test.cpp DEPENDS backend LIBRARIES test_device_backends)
if(TANDEM_HAS_CUDA)
  tandem_test(unit device
              SOURCES unit/device_shared_gpu_test.cpp unit/device_strided_copy_test.cpp unit/device_watch_list_test.cpp
              DEPENDS device_cuda LIBRARIES ${TANDEM_CUDART})
endif()
tandem_test(race device SOURCES race/device_streams_test.cpp DEPENDS device_cpu)
# The repeat paths of all modules: apart from the other tests, since this program's operator new counts its calls.
tandem_test(unit repeat_path SOURCES unit/device_repeat_path_test.cpp support/allocation_count.cpp DEPENDS device_cpu)
