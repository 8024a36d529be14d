# What the library is made with. A project that has tandem as a part and a target of the same name keeps its own.

# tandem_dependency(target package [version]): finds the package unless there is the target.
macro(tandem_dependency target)
  if(NOT TARGET ${target})
    find_package(${ARGN} REQUIRED)
  endif()
endmacro()

tandem_dependency(Threads::Threads Threads)
tandem_dependency(tl::expected tl-expected)
tandem_dependency(fmt::fmt fmt 9)
tandem_dependency(nlohmann_json::nlohmann_json nlohmann_json)
tandem_dependency(spdlog::spdlog_header_only spdlog)

# Of fmt, the headers alone: src/base/fmt.cpp compiles its one copy. Not where another project compiles fmt itself: two
# copies of one version cannot be linked.
get_target_property(fmt_is_installed fmt::fmt IMPORTED)
set(TANDEM_COMPILES_FMT ${fmt_is_installed})
if(TANDEM_INSTALL AND NOT TANDEM_COMPILES_FMT)
  message(FATAL_ERROR "TANDEM_INSTALL=ON with a target fmt::fmt that this build compiles: what is installed would lack fmt. "
                      "Set TANDEM_INSTALL=OFF, or take fmt by find_package(fmt).")
endif()
