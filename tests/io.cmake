tandem_test(unit base
            SOURCES unit/io_checkpoint_test.cpp unit/io_folder_test.cpp unit/io_mutation_test.cpp unit/io_npy_test.cpp
                    unit/io_regular_file_test.cpp unit/io_safetensors_test.cpp unit/io_whole_file_test.cpp
            DEPENDS io)
tandem_test(error base
            SOURCES error/io_checkpoint_test.cpp error/io_files_test.cpp error/io_npy_test.cpp
                    error/io_safetensors_test.cpp
            DEPENDS io)
