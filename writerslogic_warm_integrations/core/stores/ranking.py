from warm_integrations.core.stores.ranking import *
