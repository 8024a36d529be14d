tandem_test(unit base
            SOURCES unit/cost_gpu_fit_test.cpp unit/cost_machine_file_test.cpp unit/cost_products_test.cpp unit/cost_schedules_test.cpp unit/cost_table_test.cpp
                    unit/cost_transfers_test.cpp
            DEPENDS cost)
tandem_test(error base SOURCES error/cost_files_test.cpp error/cost_gpu_times_test.cpp error/cost_rates_test.cpp DEPENDS cost bootstrap)
