# One static library a module or leaf, one test executable a class and module.

# gcc sees uninitialised reads in the variants of its own library, depending on what it inlined.
set(warnings_are_errors -Werror)
set(cuda_warnings_are_errors -Werror=all-warnings)
if(NOT TANDEM_WARNINGS_AS_ERRORS)
  # Also where another project makes them errors in all of its build.
  set(CMAKE_COMPILE_WARNING_AS_ERROR OFF)
  set(warnings_are_errors -Wno-error)
  set(cuda_warnings_are_errors)
endif()
set(TANDEM_WARNINGS -Wall -Wextra -Wshadow -Wnon-virtual-dtor ${warnings_are_errors}
                    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)

# Flags that every target of the project has.
add_library(tandem_options INTERFACE)
target_compile_features(tandem_options INTERFACE cxx_std_20)
target_compile_options(
  tandem_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${TANDEM_WARNINGS}>"
                           "$<$<COMPILE_LANGUAGE:CUDA>:${cuda_warnings_are_errors};-Xcompiler=-Wall>")
if(TANDEM_COMPILES_FMT)
  get_target_property(fmt_headers fmt::fmt INTERFACE_INCLUDE_DIRECTORIES)
  target_include_directories(tandem_options SYSTEM INTERFACE ${fmt_headers})
else()
  target_link_libraries(tandem_options INTERFACE fmt::fmt)
endif()
if(TANDEM_SANITIZE)
  target_compile_options(tandem_options INTERFACE -fsanitize=${TANDEM_SANITIZE} -fno-omit-frame-pointer -Og -g1)
  target_link_options(tandem_options INTERFACE -fsanitize=${TANDEM_SANITIZE})
endif()

# tandem_library(symm_cpu SOURCES a.cpp b.cpp DEPENDS device bootstrap)
#   -> target tandem_symm_cpu, alias tandem::symm_cpu. DEPENDS names modules.
function(tandem_library name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "SOURCES;DEPENDS;PRIVATE_LIBRARIES")
  add_library(tandem_${name} STATIC ${ARG_SOURCES})
  add_library(tandem::${name} ALIAS tandem_${name})
  set_target_properties(tandem_${name} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(
    tandem_${name}
    PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
    PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_compile_features(tandem_${name} PUBLIC cxx_std_20)
  target_link_libraries(tandem_${name} PRIVATE $<BUILD_INTERFACE:tandem_options> ${ARG_PRIVATE_LIBRARIES})
  target_link_libraries(tandem_${name} PUBLIC tl::expected)
  foreach(module IN LISTS ARG_DEPENDS)
    target_link_libraries(tandem_${name} PUBLIC tandem::${module})
  endforeach()
  set_property(GLOBAL APPEND PROPERTY TANDEM_LIBRARIES tandem_${name})
endfunction()

# tandem_test(unit base SOURCES unit/base_names_test.cpp unit/base_try_test.cpp DEPENDS base [LIBRARIES ...] [TIMEOUT s])
#   -> executable test_unit_base, its cases as ctest tests with the label `unit`, each run in a process of its own.
#      A second call for the same class and module adds to the executable. Only `unit` and `race` tests may include
#      internal headers (src/). Target tests_<class> builds all of a class.
function(tandem_test class module)
  cmake_parse_arguments(PARSE_ARGV 2 ARG "" "TIMEOUT" "SOURCES;DEPENDS;LIBRARIES")
  set(target test_${class}_${module})
  if(NOT TARGET ${target})
    tandem_test_executable(${class} ${target} "${ARG_TIMEOUT}")
    # tandem_test_support has a main() of its own.
    if(NOT tandem_test_support IN_LIST ARG_LIBRARIES)
      target_link_libraries(${target} PRIVATE GTest::gtest_main)
    endif()
  endif()
  target_sources(${target} PRIVATE ${ARG_SOURCES})
  target_link_libraries(${target} PRIVATE ${ARG_LIBRARIES})
  foreach(depended IN LISTS ARG_DEPENDS)
    target_link_libraries(${target} PRIVATE tandem::${depended})
  endforeach()
endfunction()

function(tandem_test_executable class target timeout)
  if(NOT timeout)
    set(timeout 120)
  endif()
  if(TANDEM_SIMULATES_GPUS) # one instruction of a GPU is many of the host's
    math(EXPR timeout "4 * ${timeout}")
  endif()
  add_executable(${target})
  target_link_libraries(${target} PRIVATE tandem_options GTest::gtest)
  # Tests compile a third faster so (gcc 12, 2 cores); the libraries that they test are optimised as for users.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O1>)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR}/include)
  if(class STREQUAL "unit" OR class STREQUAL "race")
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  endif()
  if(NOT TARGET tests_${class})
    add_custom_target(tests_${class})
  endif()
  add_dependencies(tests_${class} ${target})
  gtest_discover_tests(${target} TEST_PREFIX "${class}." DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
                       PROPERTIES LABELS ${class} TIMEOUT ${timeout})
endfunction()
