tandem_test(unit gemm
            SOURCES unit/gemm_partial_grid_test.cpp unit/gemm_piece_grid_test.cpp unit/gemm_product_test.cpp unit/gemm_tile_order_test.cpp
                    unit/gemm_tile_test.cpp
            DEPENDS gemm gemm_cpu backend)
if(TANDEM_HAS_CUDA)
  tandem_test(unit gemm SOURCES unit/gemm_cuda_epilogue_test.cpp unit/gemm_cuda_operands_test.cpp DEPENDS gemm_cuda backend
              LIBRARIES ${TANDEM_CUDART})
endif()
if(TANDEM_HAS_NATIVE)
  tandem_test(unit gemm SOURCES unit/gemm_native_choice_test.cpp DEPENDS gemm_sm90_cuda LIBRARIES ${TANDEM_CUDART})
endif()
tandem_test(unit stamps SOURCES unit/gemm_chunk_waits_test.cpp DEPENDS gemm backend LIBRARIES test_device_backends)
tandem_test(unit repeat_path SOURCES unit/gemm_repeat_path_test.cpp DEPENDS gemm backend)
tandem_test(conformance gemm
            SOURCES conformance/gemm_async_input_mm_test.cpp conformance/gemm_gather_with_progress_test.cpp
                    conformance/gemm_matmul_4bit_test.cpp conformance/gemm_mm_test.cpp conformance/gemm_quantize_rows_test.cpp
                    conformance/gemm_scaled_bits_test.cpp conformance/gemm_scaled_mm_test.cpp
            DEPENDS gemm coll backend LIBRARIES test_fused_harness)
if(TANDEM_HAS_NATIVE)
  tandem_test(conformance gemm SOURCES conformance/gemm_native_test.cpp)
  tandem_test(unit native SOURCES unit/gemm_native_epilogue_test.cpp unit/gemm_native_scaled_test.cpp
              DEPENDS gemm gemm_sm90_cuda backend LIBRARIES test_fused_harness ${TANDEM_CUDART} TIMEOUT 400)
endif()
tandem_test(error gemm SOURCES error/gemm_arguments_test.cpp error/gemm_async_input_arguments_test.cpp DEPENDS gemm backend)
tandem_test(race gemm SOURCES race/gemm_async_input_race_test.cpp DEPENDS gemm backend)
if(TANDEM_HAS_NATIVE AND TANDEM_HAS_NVCC)
  add_test(NAME unit.gemm_ptx_orders
           COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/unit/gemm_ptx_orders_test.py ${CMAKE_CUDA_COMPILER}
                   ${PROJECT_SOURCE_DIR} ${TANDEM_CUTLASS_INCLUDE} ${TANDEM_CUTLASS_FLAGS})
  set_tests_properties(unit.gemm_ptx_orders PROPERTIES LABELS unit TIMEOUT 600)
  add_test(NAME unit.gemm_ptx_partials COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/unit/gemm_ptx_partials_test.py
                                               ${CMAKE_CUDA_COMPILER} ${PROJECT_SOURCE_DIR})
  set_tests_properties(unit.gemm_ptx_partials PROPERTIES LABELS unit TIMEOUT 600)
  include(${PROJECT_SOURCE_DIR}/cmake/tandem_disassembler.cmake)
  add_test(NAME unit.gemm_sass_registers
           COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/unit/gemm_sass_registers_test.py
                   "${TANDEM_CUOBJDUMP}" $<TARGET_FILE:tandem_gemm_sm90_cuda>)
  set_tests_properties(unit.gemm_sass_registers PROPERTIES LABELS unit TIMEOUT 600 SKIP_RETURN_CODE 77)
endif()
