# Sets TANDEM_HAS_CUDA, whether there are CUDA leaves, and TANDEM_CUDART, the runtime that they are linked to. Either
# TANDEM_HAS_NVCC: kernels are compiled for GPUs, Hopper only. Or TANDEM_SIMULATES_GPUS, by TANDEM_CUDA=SIMULATED where there
# are the toolkit's headers: they are compiled for the host, and the runtime's GPUs are host threads (tests/simulated_gpu).
# TANDEM_CUDA=AUTO: where there is a CUDA compiler and no sanitizer; inside another project, where that project has
# enabled the language CUDA: kernels take minutes to compile.

# What keeps TANDEM_CUDA=AUTO from compiling kernels; empty where nothing does.
function(tandem_why_no_kernels result)
  get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
  set(why "")
  if(TANDEM_SANITIZE)
    set(why "kernels know no sanitizer")
  elseif(NOT PROJECT_IS_TOP_LEVEL AND NOT "CUDA" IN_LIST languages)
    set(why "${CMAKE_PROJECT_NAME} has not enabled the language CUDA, nor set TANDEM_CUDA=ON")
  elseif(NOT TANDEM_NVCC AND NOT CMAKE_CUDA_COMPILER)
    set(why "no CUDA compiler here")
  else()
    find_package(CUDAToolkit QUIET)
    if(NOT CUDAToolkit_FOUND)
      set(why "a CUDA compiler here, but no CUDA toolkit")
    elseif(CUDAToolkit_VERSION VERSION_LESS 13)
      set(why "the CUDA toolkit here is ${CUDAToolkit_VERSION}, and 13 is needed")
    endif()
  endif()
  set(${result} ${why} PARENT_SCOPE)
endfunction()

# TANDEM_NVCC: the nvcc of the toolkit itself, behind links and scripts that stand in for it. One toolkit, in whatever way it
# was found, makes the same command lines, and ccache knows them again.
function(tandem_find_nvcc)
  find_program(TANDEM_NVCC nvcc PATHS /usr/local/cuda/bin ENV CUDA_HOME PATH_SUFFIXES bin)
  if(TANDEM_NVCC)
    execute_process(COMMAND ${TANDEM_NVCC} --dryrun -c none.cu OUTPUT_QUIET ERROR_VARIABLE steps)
    if(steps MATCHES "_HERE_=([^\n]+)")
      file(REAL_PATH ${CMAKE_MATCH_1}/nvcc nvcc)
      if(EXISTS ${nvcc})
        set_property(CACHE TANDEM_NVCC PROPERTY VALUE ${nvcc})
      endif()
    endif()
  endif()
endfunction()

set(TANDEM_HAS_CUDA OFF)
set(TANDEM_HAS_NVCC OFF)
set(TANDEM_SIMULATES_GPUS OFF CACHE INTERNAL "")
set(why_no_cuda "TANDEM_CUDA=${TANDEM_CUDA}")
if(TANDEM_CUDA)
  tandem_find_nvcc()
  if(TANDEM_NVCC AND NOT CMAKE_CUDA_COMPILER AND NOT CUDAToolkit_ROOT)
    cmake_path(GET TANDEM_NVCC PARENT_PATH nvcc_folder)
    cmake_path(GET nvcc_folder PARENT_PATH CUDAToolkit_ROOT)
  endif()
endif()
if(TANDEM_CUDA STREQUAL "SIMULATED")
  find_package(CUDAToolkit 13 QUIET)
  if(CUDAToolkit_FOUND)
    set(TANDEM_HAS_CUDA ON)
    set(TANDEM_SIMULATES_GPUS ON CACHE INTERNAL "")
    set(TANDEM_CUDART tandem_simulated_gpu)
  endif()
elseif(TANDEM_CUDA)
  set(TANDEM_HAS_NVCC ON)
  if(TANDEM_CUDA STREQUAL "AUTO")
    tandem_why_no_kernels(why_no_cuda)
    if(why_no_cuda)
      set(TANDEM_HAS_NVCC OFF)
      message(STATUS "tandem without CUDA: ${why_no_cuda}")
    endif()
  endif()
endif()

if(TANDEM_HAS_NVCC)
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
  set(TANDEM_HAS_CUDA ON)
  set(TANDEM_CUDART CUDA::cudart_static)
endif()
if(TANDEM_HAS_CUDA)
  set(why_no_cuda "")
endif()
set(TANDEM_WHY_NO_CUDA "${why_no_cuda}" CACHE INTERNAL "")  # for tools/build.sh

# tandem_use_cuda(target [flags of nvcc]): for a target with .cu files, or that calls the runtime. In the folder that lists
# its sources.
function(tandem_use_cuda target)
  target_link_libraries(${target} PRIVATE ${TANDEM_CUDART})
  if(TANDEM_HAS_NVCC)
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:-std=c++20;${ARGN}>")
    return()
  endif()
  get_target_property(kernels ${target} SOURCES)
  list(FILTER kernels INCLUDE REGEX "\\.cu$")
  set(folder ${PROJECT_SOURCE_DIR}/tests/simulated_gpu)
  set_source_files_properties(
    ${kernels} PROPERTIES LANGUAGE CXX
                          COMPILE_OPTIONS "-x;c++;-include;${folder}/device_code.hpp;-Wno-unknown-pragmas;-Wno-uninitialized;-fno-strict-aliasing;-O1")
  target_include_directories(${target} BEFORE PRIVATE ${folder}/include)
endfunction()

# tandem_cuda_leaf(device SOURCES a.cpp b.cu DEPENDS device ...) -> target tandem_device_cuda, as tandem_library() makes it.
# Host code sees the toolkit's headers; .cu files include neither fmt nor spdlog, which nvcc does not compile. A spilled
# register is an error.
function(tandem_cuda_leaf module)
  tandem_library(${module}_cuda ${ARGN})
  target_link_libraries(tandem_${module}_cuda PRIVATE CUDA::nvtx3)
  tandem_use_cuda(tandem_${module}_cuda -Xptxas=--warn-on-spills,--warn-on-local-memory-usage)
endfunction()
