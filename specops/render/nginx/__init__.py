"""The router's configuration: NGINX's own, and the rules as the Lua table that decide.lua reads."""
