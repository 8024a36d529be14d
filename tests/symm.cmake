tandem_test(unit symm SOURCES unit/symm_capture_test.cpp unit/symm_exchange_test.cpp unit/symm_segment_test.cpp
            DEPENDS symm symm_cpu backend)

# Kernels of a user's own, on both backends.
add_library(test_symm_kernels STATIC support/symm_kernels.cpp)
target_link_libraries(test_symm_kernels PUBLIC tandem::backend PRIVATE tandem_options)
target_include_directories(test_symm_kernels PUBLIC ${PROJECT_SOURCE_DIR}/tests)
if(TANDEM_HAS_CUDA)
  target_sources(test_symm_kernels PRIVATE support/symm_gpu_kernels.cpp support/symm_cuda_kernels.cu)
  tandem_use_cuda(test_symm_kernels -Xptxas=--warn-on-spills)
else()
  target_sources(test_symm_kernels PRIVATE support/symm_no_gpu_kernels.cpp)
endif()

tandem_test(conformance symm SOURCES conformance/symm_memory_test.cpp conformance/symm_random_lives_test.cpp
                    conformance/symm_signals_test.cpp DEPENDS backend
            LIBRARIES test_symm_kernels)
tandem_test(error symm SOURCES error/symm_arguments_test.cpp DEPENDS backend)
tandem_test(fault symm SOURCES fault/symm_timeout_test.cpp DEPENDS backend LIBRARIES test_symm_kernels)
tandem_test(race symm SOURCES race/symm_signals_race_test.cpp DEPENDS backend)
tandem_test(dist symm SOURCES dist/symm_processes_test.cpp DEPENDS backend LIBRARIES tandem_test_support TIMEOUT 300)

find_package(Python3 COMPONENTS Interpreter REQUIRED)
add_test(NAME unit.symm_signal_pad_model
         COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/models/signal_pad.py)
set_tests_properties(unit.symm_signal_pad_model PROPERTIES LABELS unit TIMEOUT 120)

# No race detector sees device code: the orders are looked up in the PTX, and in that of mutants.
if(TANDEM_HAS_NVCC)
  add_test(NAME unit.symm_ptx_orders COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/unit/symm_ptx_orders_test.py
                                             ${CMAKE_CUDA_COMPILER} ${PROJECT_SOURCE_DIR})
  set_tests_properties(unit.symm_ptx_orders PROPERTIES LABELS unit TIMEOUT 120)
endif()

# The race detector must be silent about the real orders and report each relaxed one: else its silence says nothing.
if(TANDEM_SANITIZE MATCHES thread)
  add_executable(test_race_symm_relaxed_mutant race/symm_relaxed_mutant.cpp)
  target_link_libraries(test_race_symm_relaxed_mutant PRIVATE tandem_options Threads::Threads)
  target_include_directories(test_race_symm_relaxed_mutant PRIVATE ${PROJECT_SOURCE_DIR}/src)
  add_dependencies(tests_race test_race_symm_relaxed_mutant)
  foreach(which IN ITEMS correct put take)
    add_test(NAME race.symm_relaxed_mutant_${which} COMMAND test_race_symm_relaxed_mutant ${which})
    set_tests_properties(race.symm_relaxed_mutant_${which} PROPERTIES LABELS race TIMEOUT 60)
  endforeach()
  foreach(which IN ITEMS put take)
    set_tests_properties(race.symm_relaxed_mutant_${which} PROPERTIES PASS_REGULAR_EXPRESSION "data race")
  endforeach()
endif()
