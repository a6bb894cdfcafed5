from warm_integrations.core.stores.http.wire import *
