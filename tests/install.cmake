# The installed package as a stranger meets it: staged once below the build folder, moved, then built against in both
# ways; and tandem as a part of another project. Only for the build that is installed, not for the sanitizers'.
if(TANDEM_SANITIZE OR TANDEM_SIMULATES_GPUS OR NOT TANDEM_BUILD_CLI OR NOT TANDEM_INSTALL)
  return()
endif()

function(tandem_install_test name)
  add_test(NAME install.${name}
           COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/install/${name}.sh ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
  set_tests_properties(
    install.${name} PROPERTIES
    LABELS install TIMEOUT 600
    ENVIRONMENT "CXX=${CMAKE_CXX_COMPILER};TANDEM_LIBDIR=${CMAKE_INSTALL_LIBDIR}")
endfunction()

tandem_install_test(stage)
set_tests_properties(install.stage PROPERTIES FIXTURES_SETUP installed_package)
foreach(name IN ITEMS cmake_package pkg_config contents needed_libraries)
  tandem_install_test(${name})
  set_tests_properties(install.${name} PROPERTIES FIXTURES_REQUIRED installed_package)
endforeach()
tandem_install_test(subproject)
set_tests_properties(install.subproject PROPERTIES TIMEOUT 1200)  # minutes without ccache
