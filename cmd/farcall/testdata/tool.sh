# A server of MCP with one tool with its description in tool.txt, and of a method
# that is not one of MCP. It says WORD.
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([^,}]*\).*/\1/p')
  case $line in
  *'"initialize"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"tool","version":"1"}}}\n' "$id" ;;
  *'"tools/list"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"weather","description":"%s","inputSchema":{"type":"object"}}]}}\n' "$id" "$(cat tool.txt 2>/dev/null)" ;;
  *'"tools/call"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"%s"}]}}\n' "$id" "${WORD:-sunny}" ;;
  *'"hello"'*) printf '{"jsonrpc":"2.0","id":%s,"result":"hello"}\n' "$id" ;;
  *'"id":'*) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}\n' "$id" ;;
  esac
done
