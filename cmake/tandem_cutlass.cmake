# Sets TANDEM_HAS_NATIVE and TANDEM_CUTLASS_INCLUDE: the headers of CUTLASS, which the native Hopper kernels are made of.
# They come from NVIDIA's wheel on PyPI, by checksum; a folder of one's own goes into TANDEM_CUTLASS_INCLUDE. Where there
# are none the library is built without native kernels, and says so whenever they are asked for.
include(${CMAKE_CURRENT_LIST_DIR}/tandem_wheel.cmake)
set(TANDEM_CUTLASS_INCLUDE "" CACHE PATH "Folder with the cutlass/ and cute/ headers of CUTLASS 4.2; empty: fetched")

set(cutlass_sha256 f9599ada45c7bcb6bf53f7d3f0a7d154183e53451c01bfa59eecd37dd4a693f6)
set(cutlass_url https://files.pythonhosted.org/packages/21/6b/e86fc2fd536dd4b8bd2209aa31d7002610c501b0802337787eac9c9b328c/nvidia_cutlass-4.2.0.0-py3-none-any.whl)
set(cutlass_folder ${PROJECT_BINARY_DIR}/cutlass)

function(tandem_fetch_cutlass)
  tandem_fetch_wheel(${cutlass_url} ${cutlass_sha256} ${cutlass_folder} wheel)
  if(NOT wheel)
    message(WARNING "CUTLASS: ${wheel_why}: built without native kernels. Set TANDEM_CUTLASS_INCLUDE to a folder that has "
                    "its headers.")
    return()
  endif()
  set(headers ${cutlass_folder}/cutlass_library/source/include)
  if(NOT EXISTS ${headers}/cutlass/cutlass.h)
    file(ARCHIVE_EXTRACT INPUT ${wheel} DESTINATION ${cutlass_folder} PATTERNS cutlass_library/source/include/*)
  endif()
  set(TANDEM_CUTLASS_INCLUDE ${headers} PARENT_SCOPE)
endfunction()

set(TANDEM_HAS_NATIVE OFF)
if(TANDEM_SIMULATES_GPUS)
  set(TANDEM_HAS_NATIVE ON)  # the simulated GPU's own
elseif(TANDEM_HAS_NVCC)
  if(NOT TANDEM_CUTLASS_INCLUDE)
    tandem_fetch_cutlass()
  endif()
  if(EXISTS ${TANDEM_CUTLASS_INCLUDE}/cutlass/cutlass.h)
    set(TANDEM_HAS_NATIVE ON)
  endif()
endif()

# NDEBUG: asserts in a kernel make the compiler serialise its tensor instructions. The second: without it tiles of 224 and
# 208 columns are made of instructions for 32.
set(TANDEM_CUTLASS_FLAGS -DNDEBUG -DCUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED --expt-relaxed-constexpr -diag-suppress=2908)

# For a target with kernels made of CUTLASS's parts.
function(tandem_use_cutlass target)
  target_include_directories(${target} SYSTEM PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${TANDEM_CUTLASS_INCLUDE}>)
  # Two words: ccache does not take the folder of CMake's own -isystem= as relative.
  target_compile_options(
    ${target} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-isystem ${TANDEM_CUTLASS_INCLUDE};${TANDEM_CUTLASS_FLAGS}>")
  set_target_properties(
    ${target} PROPERTIES RULE_LAUNCH_COMPILE ${PROJECT_SOURCE_DIR}/tools/refuse_serialised_tensor_instructions.sh)
endfunction()
