tandem_test(unit base
            SOURCES unit/base_convert_test.cpp unit/base_divisor_test.cpp unit/base_dlpack_test.cpp
                    unit/base_fault_test.cpp unit/base_lru_cache_test.cpp unit/base_make_thread_test.cpp
                    unit/base_memory_test.cpp
                    unit/base_names_test.cpp
                    unit/base_numeric_test.cpp unit/base_overlap_test.cpp unit/base_shared_library_test.cpp
                    unit/base_tensor_list_test.cpp unit/base_tensor_test.cpp unit/base_time_text_test.cpp
                    unit/base_try_test.cpp
            DEPENDS base LIBRARIES Threads::Threads)
tandem_test(error base SOURCES error/base_config_test.cpp error/base_fault_test.cpp DEPENDS base)
