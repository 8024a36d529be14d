# The installed package: headers, one static library a module, find_package(tandem), `pkg-config tandem`, the tool.
include(CMakePackageConfigHelpers)

get_property(tandem_libraries GLOBAL PROPERTY TANDEM_LIBRARIES)

# Appends `target` to `order` after everything it links: the reverse of what a static linker wants.
function(tandem_link_order target order)
  if(${target} IN_LIST ${order})
    return()
  endif()
  get_target_property(dependencies ${target} LINK_LIBRARIES)
  foreach(dependency IN LISTS dependencies)
    if(NOT TARGET ${dependency})
      continue()
    endif()
    get_target_property(aliased ${dependency} ALIASED_TARGET)
    if(aliased IN_LIST tandem_libraries)
      tandem_link_order(${aliased} ${order})
    endif()
  endforeach()
  list(APPEND ${order} ${target})
  set(${order} ${${order}} PARENT_SCOPE)
endfunction()

set(link_order)
foreach(library IN LISTS tandem_libraries)
  tandem_link_order(${library} link_order)
endforeach()
list(REVERSE link_order)
list(TRANSFORM link_order PREPEND "-l" OUTPUT_VARIABLE link_flags)
list(JOIN link_flags " " TANDEM_PC_LIBS)

if(TANDEM_HAS_CUDA)
  set(TANDEM_PC_CUDA_LIBS " -L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -ldl -lrt")
endif()

# Relative to the .pc file, so that an installed tree can be moved.
file(RELATIVE_PATH TANDEM_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${CMAKE_CURRENT_LIST_DIR}/tandem.pc.in ${PROJECT_BINARY_DIR}/tandem.pc @ONLY)
configure_package_config_file(
  ${CMAKE_CURRENT_LIST_DIR}/tandem-config.cmake.in ${PROJECT_BINARY_DIR}/tandem-config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tandem)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tandem-config-version.cmake COMPATIBILITY SameMinorVersion)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/tandem DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS tandem ${tandem_libraries} EXPORT tandem-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT tandem-targets NAMESPACE tandem:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tandem)
install(FILES ${PROJECT_BINARY_DIR}/tandem-config.cmake ${PROJECT_BINARY_DIR}/tandem-config-version.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tandem)
install(FILES ${PROJECT_BINARY_DIR}/tandem.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(TARGET tandem_cli)
  install(TARGETS tandem_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
