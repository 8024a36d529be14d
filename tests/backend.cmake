tandem_test(error backend SOURCES error/backend_overlap_test.cpp support/writing_calls.cpp
            DEPENDS fused program_host backend)
target_compile_definitions(test_error_backend PRIVATE TANDEM_PUBLIC_HEADERS="${PROJECT_SOURCE_DIR}/include/tandem")
