add_library(test_device_backends STATIC conformance/device_backends.cpp)
target_include_directories(test_device_backends PUBLIC ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(test_device_backends PUBLIC tandem::backend GTest::gtest PRIVATE tandem_options)

foreach(part IN ITEMS order fault)
  tandem_test(conformance device_${part} SOURCES conformance/device_${part}_test.cpp DEPENDS backend
              LIBRARIES test_device_backends GTest::gtest_main)
endforeach()
