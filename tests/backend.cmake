tandem_test(error backend_overlap SOURCES error/backend_overlap_test.cpp support/writing_calls.cpp DEPENDS fused backend
            LIBRARIES GTest::gtest_main)
target_compile_definitions(test_error_backend_overlap PRIVATE TANDEM_PUBLIC_HEADERS="${PROJECT_SOURCE_DIR}/include/tandem")
