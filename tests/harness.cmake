tandem_test(unit harness
            SOURCES unit/harness_guarded_tensor_test.cpp unit/harness_problem_test.cpp unit/harness_reference_test.cpp
                    unit/harness_stopwatch_test.cpp
            DEPENDS backend LIBRARIES tandem_harness)
