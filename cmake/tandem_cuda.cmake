# Sets TANDEM_HAS_CUDA, and how CUDA sources are compiled. Hopper only.
include(CheckLanguage)

set(TANDEM_HAS_CUDA OFF)
if(TANDEM_CUDA STREQUAL "AUTO" AND NOT TANDEM_SANITIZE)
  find_program(TANDEM_NVCC nvcc PATHS /usr/local/cuda/bin ENV CUDA_HOME PATH_SUFFIXES bin)
  if(TANDEM_NVCC)
    set(TANDEM_HAS_CUDA ON)
  endif()
elseif(TANDEM_CUDA AND NOT TANDEM_CUDA STREQUAL "AUTO")
  set(TANDEM_HAS_CUDA ON)
endif()

if(TANDEM_HAS_CUDA)
  if(TANDEM_NVCC AND NOT CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_COMPILER ${TANDEM_NVCC})
  endif()
  set(CMAKE_CUDA_ARCHITECTURES 90a-real)
  # Programs start on a machine that has neither driver nor toolkit.
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  if(TANDEM_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${TANDEM_CCACHE})
  endif()
  enable_language(CUDA)
  find_package(CUDAToolkit 13 REQUIRED)
endif()

# tandem_cuda_leaf(device SOURCES a.cpp b.cu DEPENDS device ...) -> target tandem_device_cuda, as tandem_library() makes it.
# Host code sees the toolkit's headers; .cu files include neither fmt nor spdlog, which nvcc does not compile. A spilled
# register is an error, but with MAY_SPILL.
function(tandem_cuda_leaf module)
  cmake_parse_arguments(PARSE_ARGV 1 LEAF "MAY_SPILL" "" "")
  tandem_library(${module}_cuda ${LEAF_UNPARSED_ARGUMENTS})
  target_link_libraries(tandem_${module}_cuda PRIVATE CUDA::cudart_static CUDA::nvtx3)
  target_compile_options(tandem_${module}_cuda PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>")
  if(NOT LEAF_MAY_SPILL)
    target_compile_options(
      tandem_${module}_cuda
      PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:-Xptxas=--warn-on-spills,--warn-on-local-memory-usage>")
  endif()
endfunction()
