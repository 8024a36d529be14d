tandem_test(error backend SOURCES error/backend_overlap_test.cpp error/backend_sizes_test.cpp support/writing_calls.cpp
            DEPENDS fused program_host backend)
tandem_test(error fork SOURCES error/backend_fork_test.cpp DEPENDS coll backend LIBRARIES tandem_test_support)
target_compile_definitions(test_error_backend PRIVATE TANDEM_PUBLIC_HEADERS="${PROJECT_SOURCE_DIR}/include/tandem")
