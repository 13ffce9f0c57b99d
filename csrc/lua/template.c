/* The userdata of the OneByOne template; its user value is the table of its settings. */
#include "binding.h"

/* new(settings) -> template */
static int l_new(lua_State *L) {
    luaL_checktype(L, 1, LUA_TTABLE);
    hf_new_object(L, 1, hf_template_type);
    lua_pushvalue(L, 1);
    hf_setuservalue(L, -2);
    return 1;
}

/* data(template) -> its settings */
static int l_data(lua_State *L) {
    hf_checkudata(L, 1, hf_template_type);
    hf_getuservalue(L, 1);
    return 1;
}

void hf_open_template(lua_State *L) {
    static const luaL_Reg metamethods[] = {{NULL, NULL}};
    static const luaL_Reg functions[] = {{"new", l_new}, {"data", l_data}, {NULL, NULL}};
    hf_new_type(L, hf_template_type, metamethods);
    lua_setfield(L, -2, "template_type");
    lua_newtable(L);
    hf_set_functions(L, functions);
    lua_setfield(L, -2, "template");
}
