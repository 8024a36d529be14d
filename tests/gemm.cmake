tandem_test(unit gemm_tile SOURCES unit/gemm_tile_test.cpp DEPENDS gemm_cpu LIBRARIES GTest::gtest_main)
tandem_test(unit gemm_tile_order SOURCES unit/gemm_tile_order_test.cpp DEPENDS gemm LIBRARIES GTest::gtest_main)
tandem_test(unit gemm_patch_grid SOURCES unit/gemm_patch_grid_test.cpp DEPENDS gemm LIBRARIES GTest::gtest_main)
tandem_test(unit gemm_product SOURCES unit/gemm_product_test.cpp DEPENDS gemm backend LIBRARIES GTest::gtest_main)
tandem_test(unit gemm_repeat_path SOURCES unit/gemm_repeat_path_test.cpp support/allocation_count.cpp
            DEPENDS gemm backend LIBRARIES GTest::gtest_main)
tandem_test(conformance gemm_mm SOURCES conformance/gemm_mm_test.cpp DEPENDS gemm backend LIBRARIES GTest::gtest_main)
tandem_test(conformance gemm_scaled_mm SOURCES conformance/gemm_scaled_mm_test.cpp DEPENDS gemm backend
            LIBRARIES test_fused_harness GTest::gtest_main)
tandem_test(conformance gemm_async_input_mm SOURCES conformance/gemm_async_input_mm_test.cpp DEPENDS gemm backend
            LIBRARIES test_fused_harness GTest::gtest_main)
tandem_test(conformance gemm_gather_with_progress SOURCES conformance/gemm_gather_with_progress_test.cpp
            DEPENDS gemm coll backend LIBRARIES GTest::gtest_main)
tandem_test(error gemm_async_input_arguments SOURCES error/gemm_async_input_arguments_test.cpp DEPENDS gemm backend
            LIBRARIES GTest::gtest_main)
tandem_test(race gemm_async_input SOURCES race/gemm_async_input_race_test.cpp DEPENDS gemm backend
            LIBRARIES GTest::gtest_main)
tandem_test(error gemm_arguments SOURCES error/gemm_arguments_test.cpp DEPENDS gemm backend LIBRARIES GTest::gtest_main)
if(TANDEM_HAS_NATIVE)
  tandem_test(conformance gemm_native SOURCES conformance/gemm_native_test.cpp DEPENDS gemm backend
              LIBRARIES test_fused_harness GTest::gtest_main)
  tandem_test(unit gemm_native_choice SOURCES unit/gemm_native_choice_test.cpp DEPENDS gemm_sm90_cuda
              LIBRARIES ${TANDEM_CUDART} GTest::gtest_main)
endif()
if(TANDEM_HAS_NATIVE AND TANDEM_HAS_NVCC)
  add_test(NAME unit.gemm_ptx_orders
           COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/unit/gemm_ptx_orders_test.py ${CMAKE_CUDA_COMPILER}
                   ${PROJECT_SOURCE_DIR} -I${TANDEM_CUTLASS_INCLUDE} ${TANDEM_CUTLASS_FLAGS})
  set_tests_properties(unit.gemm_ptx_orders PROPERTIES LABELS unit TIMEOUT 600)
  include(${PROJECT_SOURCE_DIR}/cmake/tandem_disassembler.cmake)
  add_test(NAME unit.gemm_sass_registers
           COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/unit/gemm_sass_registers_test.py
                   "${TANDEM_CUOBJDUMP}" $<TARGET_FILE:tandem_gemm_sm90_cuda>)
  set_tests_properties(unit.gemm_sass_registers PROPERTIES LABELS unit TIMEOUT 120 SKIP_RETURN_CODE 77)
endif()
if(TANDEM_HAS_CUDA)
  tandem_test(unit gemm_cuda_operands SOURCES unit/gemm_cuda_operands_test.cpp DEPENDS gemm_cuda
              LIBRARIES ${TANDEM_CUDART} GTest::gtest_main)
endif()
