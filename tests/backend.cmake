tandem_test(error backend SOURCES error/backend_overlap_test.cpp support/writing_calls.cpp DEPENDS fused backend)
target_compile_definitions(test_error_backend PRIVATE TANDEM_PUBLIC_HEADERS="${PROJECT_SOURCE_DIR}/include/tandem")
